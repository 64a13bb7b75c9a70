// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.multiconnector.Kvferry;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.Operation;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackend.PeerState;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.spi.transfer.TransferBackends.Ranking;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.lang.foreign.Arena;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/// The transfer agent over a backend that it meets only at run time: the file backend of the disk
/// module.
class AgentWithFileBackendTest {
    private static final int BYTES = 64 << 10;

    @TempDir Path folder;

    @Test
    void writesMemoryToAFileAndReadsItBack() throws Exception {
        var file = folder.resolve("blocks.bin");
        Files.write(file, new byte[BYTES]);
        try (var kvferry = Kvferry.open(PluginCatalog.ofClassPath(), EventSink.NONE);
                var agent =
                        kvferry.services()
                                .transfers()
                                .open(
                                        new PeerId("writer", 1),
                                        List.of(new Choice("FILE", Map.of())),
                                        Ranking.LISTED,
                                        new Deaf());
                var arena = Arena.ofShared()) {
            var bytes = arena.allocate(BYTES, 4096);
            bytes.fill((byte) 42);
            try (var memory = agent.register(new MemoryRange.Host(bytes));
                    var stored = agent.register(new MemoryRange.FileRange(file, 0, BYTES, true));
                    var local = agent.prepare(Optional.empty(), DescriptorList.of(memory));
                    var remote = agent.prepare(Optional.empty(), DescriptorList.of(stored))) {
                var deadline = Deadline.in(Duration.ofSeconds(20));

                assertThat(
                                end(
                                        agent,
                                        new TransferRequest(
                                                Operation.WRITE, local, remote, deadline)))
                        .isInstanceOf(TransferOutcome.Done.class);
                assertThat(Files.readAllBytes(file)).hasSize(BYTES).containsOnly(42);

                bytes.fill((byte) 0);
                assertThat(end(agent, new TransferRequest(Operation.READ, local, remote, deadline)))
                        .isInstanceOf(TransferOutcome.Done.class);
                assertThat(bytes.mismatch(arena.allocate(BYTES).fill((byte) 42))).isEqualTo(-1);
            }
        }
    }

    private static TransferOutcome end(TransferBackend agent, TransferRequest spec)
            throws Exception {
        var transfer = agent.submit(spec);
        var outcome = transfer.completion().toCompletableFuture().get(20, TimeUnit.SECONDS);
        transfer.quiesced().toCompletableFuture().get(20, TimeUnit.SECONDS);
        return outcome;
    }

    private static final class Deaf implements BackendContext.Sink {
        @Override
        public void notified(PeerId from, byte[] notification) {}

        @Override
        public void peerChanged(PeerId peer, PeerState state, String why) {}
    }
}
