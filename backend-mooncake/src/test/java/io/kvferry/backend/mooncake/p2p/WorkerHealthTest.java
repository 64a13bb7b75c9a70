// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.KvRole;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvCacheGroup;
import io.kvferry.spi.memory.KvCacheSpec;
import io.kvferry.spi.memory.KvFormat;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.memory.StagingPool;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.spi.transfer.TransferBackends;

import org.junit.jupiter.api.Test;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

class WorkerHealthTest {
    /// An engine whose ports are in trouble as the test says.
    private static TransferEngine troubled(TransferEngine engine, AtomicInteger looks) {
        return proxy((_, method, arguments) -> {
            if (method.getName().equals("trouble")) {
                return switch (looks.getAndIncrement()) {
                    case 0 -> throw new OutOfMemoryError("thrown by the test");
                    case 1, 2 -> Optional.of("no port");
                    default -> Optional.empty();
                };
            }
            return invoke(engine, method, arguments);
        });
    }

    /// An engine from whose memory a peer copies when it is closed, so often.
    private static TransferEngine copiedFrom(TransferEngine engine, AtomicInteger times) {
        return proxy((_, method, arguments) -> {
            if (method.getName().equals("close") && times.getAndDecrement() > 0) {
                throw new KvFerryException(ErrorCode.TIMEOUT, "thrown by the test");
            }
            return invoke(engine, method, arguments);
        });
    }

    private static TransferEngine proxy(InvocationHandler handler) {
        return (TransferEngine)
                Proxy.newProxyInstance(
                        WorkerHealthTest.class.getClassLoader(),
                        new Class<?>[] {TransferEngine.class},
                        handler);
    }

    private static Object invoke(TransferEngine engine, Method method, Object[] arguments)
            throws Throwable {
        try {
            return method.invoke(engine, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    /// A look that fails is not the last one, nor is news that could not be told lost.
    @Test
    void saysThatAPortIsOutOfOrderAndInOrderAgainWhateverFailsMeanwhile() throws Exception {
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        var told = new AtomicInteger();
        var host =
                HostServices.of(
                        event -> {
                            if (told.getAndIncrement() == 0) {
                                throw new IllegalStateException("thrown by the test");
                            }
                            if (event instanceof TraceEvent.Incident incident) {
                                heard.add(incident.kind() + " " + incident.details().get("detail"));
                            }
                        },
                        TransferBackends.NONE,
                        StagingPool.NONE,
                        () -> {});
        var engine = JavaTransferEngine.start(EngineConfig.defaults());
        var plane = new OwnEngine(troubled(engine, new AtomicInteger()), false);
        var worker = new MooncakeWorker(context(host), plane, Optional.empty());
        try {
            worker.registerRegions(List.of());
            assertThat(heard.poll(30, TimeUnit.SECONDS))
                    .isEqualTo(TraceEvent.Incident.OUT_OF_ORDER + " no port");
            assertThat(heard.poll(30, TimeUnit.SECONDS))
                    .isEqualTo(TraceEvent.Incident.IN_ORDER + " ");
        } finally {
            worker.close();
        }
    }

    /// A peer on this host that was stopped in the middle of a copy, and ends at last.
    @Test
    void isClosedOnceNothingUsesItsBlocksAnyMore() {
        var host = HostServices.of(_ -> {}, TransferBackends.NONE, StagingPool.NONE, () -> {});
        var engine = JavaTransferEngine.start(EngineConfig.defaults());
        var copies = new AtomicInteger(2);
        var plane = new OwnEngine(copiedFrom(engine, copies), false);
        var worker = new MooncakeWorker(context(host), plane, Optional.empty());
        worker.registerRegions(List.of());
        for (int i = 0; i < 2; i++) {
            assertThatThrownBy(worker::close)
                    .isInstanceOfSatisfying(
                            KvFerryException.class,
                            e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
        }
        worker.close();
        worker.close();
        assertThat(copies).as("closed once").hasValue(-1);
    }

    private static WorkerContext context(HostServices host) {
        var options = Map.<String, Object>of("rehearsal", false);
        var cache =
                new KvCacheSpec(
                        List.of(
                                new KvCacheGroup(
                                        0,
                                        KvCacheGroup.Kind.FULL_ATTENTION,
                                        new KvFormat.Heads(DType.UINT8, KvLayout.LBHNC, 1, 8),
                                        List.of("l"),
                                        16,
                                        128)),
                        4);
        var namespace = new CacheNamespace("m", "r", DType.UINT8, KvLayout.LBHNC, 1, 16, 1, 1, "");
        return new WorkerContext(
                "mooncake",
                ConnectorConfig.of("MooncakeConnector", KvRole.CONSUMER, "e", options),
                MooncakeSettings.SCHEMA.read("mooncake", options),
                new EngineInfo("m", namespace, cache, 1, 0, 1),
                new RankInfo(0, 1, 0, 1, 0, 1),
                host);
    }
}
