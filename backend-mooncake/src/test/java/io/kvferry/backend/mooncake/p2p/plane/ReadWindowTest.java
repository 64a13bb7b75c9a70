// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.plane;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.backend.mooncake.p2p.testkit.BackendHosts;
import io.kvferry.backend.mooncake.te.Extents;
import io.kvferry.backend.mooncake.te.Ranges;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackends.Choice;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.tck.memory.MemoryBackendProvider;

import org.junit.jupiter.api.Test;

import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/// The window of a load knows every read that has started, whatever the backend throws afterwards.
class ReadWindowTest {
    private static final PeerId SOURCE = new PeerId("p", 1);

    /// A read that ends when the test says so, and cannot be stopped.
    private record Pending(
            CompletableFuture<TransferOutcome> outcome,
            CompletableFuture<Void> quiet,
            boolean throwing)
            implements Transfer {
        Pending(boolean throwing) {
            this(new CompletableFuture<>(), new CompletableFuture<>(), throwing);
        }

        @Override
        public CompletionStage<TransferOutcome> completion() {
            return outcome;
        }

        @Override
        public CompletionStage<Void> quiesced() {
            return quiet;
        }

        @Override
        public Optional<TransferOutcome> poll() {
            return Optional.ofNullable(outcome.getNow(null));
        }

        @Override
        public List<String> attempts() {
            if (throwing) {
                throw new IllegalStateException("thrown by the test");
            }
            return List.of("MEMORY");
        }

        @Override
        public boolean cancel() {
            return false;
        }
    }

    private static Object prepared(RuntimeException atClose) {
        return Proxy.newProxyInstance(
                ReadWindowTest.class.getClassLoader(),
                new Class<?>[] {Prepared.class, AutoCloseable.class},
                (_, method, _) -> {
                    if (method.getName().equals("close")) {
                        throw atClose;
                    }
                    return null;
                });
    }

    /// A backend with one read, whose descriptor lists cannot be closed.
    private static UnaryOperator<TransferBackend> around(Pending read) {
        return backend ->
                (TransferBackend)
                        Proxy.newProxyInstance(
                                ReadWindowTest.class.getClassLoader(),
                                new Class<?>[] {TransferBackend.class},
                                (_, method, arguments) ->
                                        switch (method.getName()) {
                                            case "loadPeer" -> null;
                                            case "prepare" ->
                                                    prepared(
                                                            new IllegalStateException(
                                                                    "thrown by the test"));
                                            case "submit" -> read;
                                            default -> method.invoke(backend, arguments);
                                        });
    }

    private static HostBackends backends(Pending read) {
        return HostBackends.open(
                BackendHosts.of(new MemoryBackendProvider(), around(read)),
                List.of(new Choice("MEMORY", Map.of())),
                new PeerId("d", 1),
                "127.0.0.1");
    }

    private static CompletableFuture<TransferOutcome> begin(ReadWindow window) {
        var ended = new CompletableFuture<TransferOutcome>();
        window.read(
                new ReadWindow.Source(SOURCE, new byte[0]),
                Ranges.of(0x1000, 0x2000, 64),
                Deadline.in(Duration.ofSeconds(60)),
                "r",
                (outcome, _) -> ended.complete(outcome));
        return ended;
    }

    private static Extents extents() {
        var extents = new Extents.Builder();
        extents.add(0x1000, 64);
        return extents.build();
    }

    @Test
    void aReadThatHasStartedIsAwaitedWhateverFailsAfterwards() throws Exception {
        for (boolean throwing : new boolean[] {false, true}) {
            var read = new Pending(throwing);
            try (var backends = backends(read)) {
                var window = new ReadWindow(backends, extents(), Duration.ofMillis(200));
                var ended = begin(window);
                assertThatThrownBy(window::close)
                        .isInstanceOfSatisfying(
                                KvFerryException.class,
                                e -> assertThat(e.code()).isEqualTo(ErrorCode.TIMEOUT));
                read.outcome().complete(new TransferOutcome.Cancelled());
                read.quiet().complete(null);
                assertThat(ended.get(30, TimeUnit.SECONDS))
                        .isInstanceOf(TransferOutcome.Cancelled.class);
                window.close();
            }
        }
    }
}
