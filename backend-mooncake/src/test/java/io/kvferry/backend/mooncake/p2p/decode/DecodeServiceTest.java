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
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.memory.CacheNamespace;
import io.kvferry.spi.memory.DType;
import io.kvferry.spi.memory.KvLayout;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.RankInfo;
import io.kvferry.toolkit.bounded.Outbox;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.lang.foreign.Arena;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

class DecodeServiceTest {
    /// Of an address and nothing behind it.
    private static void register(BootstrapServer server) throws InterruptedException {
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

    /// A cache group of which this rank has no layer, in a generation that has no words for groups.
    @Test
    void aLoadWhoseRequestCannotBeWrittenFails() throws Exception {
        var settings =
                MooncakeSettings.from(
                        MooncakeSettings.SCHEMA.read(
                                "test", Map.of("wire_generation", "G3", "peer_layout", "alike")));
        var woken = new CompletableFuture<Void>();
        var outbox = new Outbox(0, () -> woken.complete(null));
        try (var arena = Arena.ofShared();
                var channel = new SideChannel("channel");
                var server = BootstrapServer.start("127.0.0.1", 0);
                var engine =
                        JavaTransferEngine.start(
                                EngineConfig.from(Map.of("shared-memory", "false")))) {
            register(server);
            var plane = new OwnEngine(engine, false);
            var region =
                    new KvRegion(
                            "layer",
                            0,
                            0,
                            new MemoryRange.Host(arena.allocate(512, 64)),
                            4,
                            128,
                            128);
            var memory = new RegionMemory(plane, List.of(region));
            var requests =
                    new FetchRequests(
                            plane,
                            memory,
                            1,
                            new RankInfo(0, 1, 0, 1, 0, 1),
                            new CacheNamespace(
                                    "m", "r", DType.UINT8, KvLayout.LBHNC, 1, 16, 1, 1, ""),
                            settings);
            try (var service =
                    new DecodeService(
                            "decode", channel, plane, memory, requests, settings, outbox)) {
                service.pull(
                        List.of(
                                new MooncakePlan.Pull(
                                        TransferId.load("d", 0),
                                        "d",
                                        "x",
                                        "p",
                                        "http://127.0.0.1:" + server.port(),
                                        List.of(new int[] {1}, new int[0]),
                                        128)));
                woken.get(30, TimeUnit.SECONDS);
                assertThat(outbox.takeCompletions())
                        .singleElement()
                        .satisfies(completion ->
                                assertThat(completion.result())
                                        .isInstanceOfSatisfying(
                                                Completion.Failed.class,
                                                failed ->
                                                        assertThat(failed.failure().message())
                                                                .contains("one list of blocks")));
            }
            memory.close();
        }
    }
}
