// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.decode;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapClient;
import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.p2p.bootstrap.WorkerRegistration;
import io.kvferry.backend.mooncake.p2p.common.MooncakePlan;
import io.kvferry.backend.mooncake.p2p.common.MooncakeSettings;
import io.kvferry.backend.mooncake.p2p.plane.OwnEngine;
import io.kvferry.backend.mooncake.p2p.plane.RegionMemory;
import io.kvferry.backend.mooncake.p2p.testkit.TestEngine;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.TransferEngine;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.spi.wire.Payload;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.bounded.SerialLoop;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/// How loads fail that cannot be asked for.
class DecodeServiceTest {
    private final BlockingQueue<Boolean> woken = new LinkedBlockingQueue<>();
    private final Outbox outbox = new Outbox(0, () -> woken.add(true));
    private final AtomicBoolean broken = new AtomicBoolean();
    private final MooncakeSettings settings =
            MooncakeSettings.from(
                    MooncakeSettings.SCHEMA.read(
                            "test", Map.of("wire_generation", "G3", "peer_layout", "alike")));
    private final Arena arena = Arena.ofShared();
    private final SideChannel channel = new SideChannel("channel");
    private final BootstrapServer server = BootstrapServer.start("127.0.0.1", 0);
    private final TransferEngine engine =
            JavaTransferEngine.start(EngineConfig.from(Map.of("shared-memory", "false")));
    private final OwnEngine plane = new OwnEngine(breakable(engine), false);
    private final RegionMemory memory =
            new RegionMemory(
                    plane,
                    List.of(
                            new KvRegion(
                                    "layer",
                                    0,
                                    0,
                                    new MemoryRange.Host(arena.allocate(512, 64)),
                                    4,
                                    128,
                                    128)));
    private final FetchRequests requests =
            new FetchRequests(
                    plane,
                    memory,
                    1,
                    new RankInfo(0, 1, 0, 1, 0, 1),
                    new CacheNamespace("m", "r", DType.UINT8, KvLayout.LBHNC, 1, 16, 1, 1, ""),
                    settings);
    private final DecodeService service =
            new DecodeService("decode", channel, plane, memory, requests, settings, outbox);

    /// Its identity is not told once while the test says that it is broken.
    private TransferEngine breakable(TransferEngine real) {
        return (TransferEngine)
                Proxy.newProxyInstance(
                        TransferEngine.class.getClassLoader(),
                        new Class<?>[] {TransferEngine.class},
                        (_, method, arguments) -> {
                            if (method.getName().equals("info")
                                    && broken.compareAndSet(true, false)) {
                                throw new IllegalStateException("broken");
                            }
                            return method.invoke(real, arguments);
                        });
    }

    @BeforeEach
    void registerAPrefillerThatIsNotThere() throws InterruptedException {
        try (var client = new BootstrapClient(TestEngine.SOON)) {
            client.register(
                    URI.create("http://127.0.0.1:" + server.port()),
                    new WorkerRegistration(
                            "p",
                            0,
                            0,
                            0,
                            "tcp://127.0.0.1:1",
                            Optional.of(
                                    new WorkerRegistration.Extra(
                                            "1", 1, 1, true, Duration.ofSeconds(60)))));
        }
    }

    @AfterEach
    void close() {
        service.close();
        memory.close();
        engine.close();
        server.close();
        channel.close();
        arena.close();
    }

    /// A cache group of which this rank has no layer, in a generation that has no words for groups.
    private MooncakePlan.Pull pull(int number) {
        return new MooncakePlan.Pull(
                TransferId.load("d", number),
                "d",
                "x",
                "p",
                "http://127.0.0.1:" + server.port(),
                List.of(new int[] {1}, new int[0]),
                128);
    }

    private List<Completion> completions(int count) throws InterruptedException {
        for (int i = 0; i < count; i++) {
            assertThat(woken.poll(30, TimeUnit.SECONDS)).as("completion %s", i).isNotNull();
        }
        return outbox.report(0, Payload.EMPTY).completions();
    }

    private static void assertFailed(Completion completion, String text) {
        assertThat(completion.result())
                .isInstanceOfSatisfying(
                        Completion.Failed.class,
                        failed -> assertThat(failed.failure().message()).contains(text));
    }

    @Test
    void aLoadWhoseRequestCannotBeWrittenFails() throws Exception {
        service.pull(List.of(pull(0)));
        assertThat(completions(1))
                .singleElement()
                .satisfies(completion -> assertFailed(completion, "one list of blocks"));
    }

    @Test
    void aLoadFailsWhoseBeginningThrowsWhenItsPrefillerIsFound() throws Exception {
        broken.set(true);
        service.pull(List.of(pull(0)));
        assertThat(completions(1))
                .singleElement()
                .satisfies(completion -> assertFailed(completion, "broken"));
    }

    /// The prefiller is known, so both messages are made at once.
    @Test
    void aLoadWhoseBeginningThrowsFailsAloneAndOnce() throws Exception {
        service.pull(List.of(pull(0)));
        assertThat(completions(1)).hasSize(1);
        broken.set(true);
        service.pull(List.of(pull(1), pull(2)));
        var failed = completions(2);
        assertThat(failed)
                .extracting(Completion::id)
                .containsExactly(TransferId.load("d", 1), TransferId.load("d", 2));
        assertFailed(failed.get(0), "broken");
        assertFailed(failed.get(1), "one list of blocks");
        service.revoke(TransferId.load("d", 1));
        service.pull(List.of(pull(3)));
        assertThat(completions(1))
                .extracting(Completion::id)
                .containsExactly(TransferId.load("d", 3));
    }

    @Test
    void aLoadIsReportedWhateverItsEndThrows() throws Exception {
        try (var loop = new SerialLoop("loop");
                var directory = new EngineDirectory(loop, TestEngine.SOON, Optional.empty());
                var endings =
                        new FetchEndings(channel, loop, requests, directory, settings, outbox)) {
            var fetch = new Fetch(pull(0));
            fetch.afterwards(() -> {
                throw new IllegalStateException("broken");
            });
            var failure = new Failure(ErrorCode.PEER_LOST, "gone");
            loop.post(() -> {
                assertThat(endings.add(fetch)).isTrue();
                endings.lose(fetch, failure);
            });
            assertThat(completions(1))
                    .singleElement()
                    .satisfies(completion -> assertFailed(completion, "gone"));
        }
    }
}
