// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.backend.mooncake.p2p.bootstrap.BootstrapServer;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;
import io.kvferry.backend.mooncake.te.EngineConfig;
import io.kvferry.backend.mooncake.te.JavaTransferEngine;
import io.kvferry.backend.mooncake.te.MetadataServer;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.net.SilentNameServer;
import io.kvferry.toolkit.zmtp.SideChannel;

import org.junit.jupiter.api.Test;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/// What is started while no name server answers fails for that reason, and soon.
class SilentNameServerTest {
    private static final String HOST = "host" + SilentNameServer.SUFFIX;

    private static SideChannel.Requests noRequests() {
        return (_, _) -> {};
    }

    @Test
    void nothingThatStartsWaitsForItForEver() throws Exception {
        var starts = new LinkedHashMap<String, Callable<?>>();
        starts.put(
                "ports of the transfer engine",
                () ->
                        JavaTransferEngine.start(
                                EngineConfig.from(
                                        Map.of(
                                                "bind-host",
                                                HOST,
                                                "min-port",
                                                "20000",
                                                "max-port",
                                                "30000"))));
        starts.put("metadata server", () -> MetadataServer.start(HOST, 0));
        starts.put("bootstrap server", () -> BootstrapServer.start(HOST, 0));
        starts.put(
                "side channel",
                () -> {
                    try (var channel = new SideChannel("test", Optional.empty())) {
                        return channel.listen("127.0.0.1", HOST, 20_000, 30_000, noRequests());
                    }
                });
        var store = RemoteStoreConfig.of(HOST + ":1");
        starts.put("way to a store", store::ownHost);
        starts.put(
                "secret of a store",
                () -> {
                    store.checkSecret();
                    return true;
                });
        try (var threads = Executors.newThreadPerTaskExecutor(Thread.ofPlatform().factory())) {
            var ends = new LinkedHashMap<String, Future<?>>();
            starts.forEach((what, start) -> ends.put(what, threads.submit(start)));
            for (var end : ends.entrySet()) {
                assertThat(end.getValue())
                        .as(end.getKey())
                        .failsWithin(30, TimeUnit.SECONDS)
                        .withThrowableThat()
                        .havingCause()
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT))
                        .withMessageContaining(HOST)
                        .withMessageContaining("name server");
            }
        }
    }
}
