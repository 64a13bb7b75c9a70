// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.BackendCapabilities.Feature;
import io.kvferry.spi.transfer.BackendContext;
import io.kvferry.spi.transfer.DescriptorList;
import io.kvferry.spi.transfer.PeerId;
import io.kvferry.spi.transfer.Prepared;
import io.kvferry.spi.transfer.Transfer;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferOutcome;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.tck.memory.MemoryBackendProvider;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/// [BackendMutants] with defects in one feature each.
final class BackendFeatureMutants {
    private BackendFeatureMutants() {}

    /// Changes what a provider opens and claims.
    abstract static class Changed extends BackendMutants.Mutant {
        @Override
        protected TransferBackendProvider provider() {
            return Interceptor.wrap(
                    TransferBackendProvider.class,
                    super.provider(),
                    (method, arguments, proceed) -> {
                        if (method.getName().equals("open")
                                && arguments[0] instanceof BackendContext context) {
                            arguments[0] = context(context);
                        }
                        return switch (proceed.run()) {
                            case TransferBackend opened -> backend(opened);
                            case BackendCapabilities claimed -> claim(claimed);
                            case Object other -> other;
                            case null -> null;
                        };
                    });
        }

        BackendContext context(BackendContext context) {
            return context;
        }

        TransferBackend backend(TransferBackend opened) {
            return opened;
        }

        BackendCapabilities claim(BackendCapabilities claimed) {
            return claimed;
        }

        static TransferBackend instead(
                TransferBackend opened, String method, Interceptor.Around other) {
            return Defects.instead(TransferBackend.class, opened, method, other);
        }

        static BackendCapabilities features(
                BackendCapabilities claimed, Consumer<EnumSet<Feature>> change) {
            var features = EnumSet.copyOf(claimed.features());
            change.accept(features);
            return new BackendCapabilities(
                    claimed.routes(),
                    features,
                    claimed.threading(),
                    claimed.maxDescriptors(),
                    claimed.maxBytes(),
                    claimed.alignment());
        }

        final Map<String, Object> with(String option, Object value, Map<String, Object> options) {
            var more = new HashMap<>(options);
            more.put(option, value);
            return more;
        }
    }

    /// Without a defect: claims all that the reference backend can be told to claim.
    static class None extends Changed {
        @Override
        protected Duration limit() {
            return Duration.ofSeconds(15);
        }

        @Override
        protected Map<String, Object> options(String agent) {
            return with(
                    "with",
                    List.of("CHECKSUM", "SELF_MANAGED_METADATA"),
                    with("threading", "confined", super.options(agent)));
        }

        @Override
        protected boolean damageInTransit() {
            MemoryBackendProvider.damageNext(String.valueOf(options("damaged").get("fabric")));
            return true;
        }
    }

    static class FindsStrangers extends Changed {
        @Override
        TransferBackend backend(TransferBackend opened) {
            return instead(
                    opened,
                    "prepare",
                    (_, arguments, proceed) -> {
                        try {
                            return proceed.run();
                        } catch (KvFerryException e) {
                            return new Anything((DescriptorList) arguments[1]);
                        }
                    });
        }

        private record Anything(@Nullable DescriptorList descriptorsOrNull) implements Prepared {
            @Override
            public DescriptorList descriptors() {
                if (descriptorsOrNull == null) {
                    throw new IllegalStateException("nothing was prepared");
                }
                return descriptorsOrNull;
            }

            @Override
            public Optional<PeerId> peer() {
                return Optional.empty();
            }

            @Override
            public void close() {}
        }
    }

    static class ManagesNothing extends Changed {
        @Override
        BackendCapabilities claim(BackendCapabilities claimed) {
            return features(claimed, all -> all.add(Feature.SELF_MANAGED_METADATA));
        }
    }

    static class ExplainsByDoing extends Changed {
        /// Long: a transfer that times out in a pause of the machine moves nothing.
        @Override
        protected Duration limit() {
            return Duration.ofSeconds(15);
        }

        @Override
        TransferBackend backend(TransferBackend opened) {
            return instead(
                    opened,
                    "explain",
                    (_, arguments, proceed) -> {
                        if (arguments[0] instanceof TransferRequest request) {
                            opened.submit(request).completion().toCompletableFuture().join();
                        }
                        return proceed.run();
                    });
        }
    }

    static class SelectsNothing extends Changed {
        @Override
        TransferBackend backend(TransferBackend opened) {
            return instead(
                    opened,
                    "select",
                    (_, arguments, proceed) ->
                            arguments[1] instanceof int[] indices && indices.length == 0
                                    ? arguments[0]
                                    : proceed.run());
        }
    }

    static class LosesSomeNotes extends Changed {
        @Override
        BackendContext context(BackendContext context) {
            var heard = new AtomicInteger();
            var sink =
                    Defects.instead(
                            BackendContext.Sink.class,
                            context.sink(),
                            "notified",
                            (_, _, proceed) ->
                                    heard.incrementAndGet() % 70 == 0 ? null : proceed.run());
            return new BackendContext(context.self(), context.options(), sink, context.events());
        }
    }

    static class NotifiesAhead extends Changed {
        @Override
        TransferBackend backend(TransferBackend opened) {
            return instead(
                    opened,
                    "submit",
                    (_, arguments, proceed) -> {
                        if (arguments[0] instanceof TransferRequest request
                                && request.notification().isPresent()) {
                            opened.notify(
                                    request.remote().peer().orElseThrow(),
                                    request.notification().get());
                        }
                        return proceed.run();
                    });
        }
    }

    static class LosesAllWithOne extends Changed {
        @Override
        TransferBackend backend(TransferBackend opened) {
            var lost = new AtomicBoolean();
            return instead(
                    opened,
                    "submit",
                    (_, _, proceed) -> {
                        if (lost.get()) {
                            throw new KvFerryException(ErrorCode.PEER_LOST, "like the other one");
                        }
                        var transfer = (Transfer) proceed.run();
                        if (transfer != null) {
                            var unused =
                                    transfer.completion()
                                            .thenAccept(end -> lost.set(isFailed(end)));
                        }
                        return transfer;
                    });
        }

        private static boolean isFailed(TransferOutcome end) {
            return end instanceof TransferOutcome.Failed;
        }
    }

    /// Says that a cancelled transfer touches nothing, and lets it go on.
    static class QuiescesTooSoon extends Changed {
        /// Long: as of [ExplainsByDoing].
        @Override
        protected Duration limit() {
            return Duration.ofSeconds(15);
        }

        @Override
        TransferBackend backend(TransferBackend opened) {
            return instead(
                    opened,
                    "submit",
                    (_, _, proceed) -> {
                        var transfer = (Transfer) proceed.run();
                        return transfer == null ? null : new Hasty(transfer);
                    });
        }

        private static final class Hasty implements Transfer {
            private final Transfer transfer;
            private final CompletableFuture<TransferOutcome> completion = new CompletableFuture<>();
            private final CompletableFuture<Void> quiesced = new CompletableFuture<>();

            Hasty(Transfer transfer) {
                this.transfer = transfer;
                var unused =
                        transfer.quiesced()
                                .thenRun(() -> {
                                    completion.complete(transfer.poll().orElseThrow());
                                    quiesced.complete(null);
                                });
            }

            @Override
            public CompletableFuture<TransferOutcome> completion() {
                return completion;
            }

            @Override
            public CompletableFuture<Void> quiesced() {
                return quiesced;
            }

            @Override
            public Optional<TransferOutcome> poll() {
                return Optional.ofNullable(completion.getNow(null));
            }

            @Override
            public boolean cancel() {
                boolean first = completion.complete(new TransferOutcome.Cancelled());
                quiesced.complete(null);
                return first;
            }
        }
    }

    /// Says of every failed transfer that all of it moved.
    static class SaysAllMoved extends Changed {
        @Override
        TransferBackend backend(TransferBackend opened) {
            return instead(
                    opened,
                    "submit",
                    (_, _, proceed) -> {
                        var transfer = (Transfer) proceed.run();
                        return transfer == null ? null : new Boasting(transfer);
                    });
        }

        private record Boasting(Transfer transfer, CompletableFuture<TransferOutcome> completion)
                implements Transfer {
            Boasting(Transfer transfer) {
                this(transfer, new CompletableFuture<>());
                var unused =
                        transfer.completion().thenAccept(end -> completion.complete(boast(end)));
            }

            private static TransferOutcome boast(TransferOutcome end) {
                return end instanceof TransferOutcome.Failed failed
                        ? new TransferOutcome.Failed(
                                failed.failure(), new boolean[] {true, true, true})
                        : end;
            }

            @Override
            public CompletionStage<Void> quiesced() {
                return transfer.quiesced();
            }

            @Override
            public Optional<TransferOutcome> poll() {
                return Optional.ofNullable(completion.getNow(null));
            }

            @Override
            public boolean cancel() {
                return transfer.cancel();
            }
        }
    }

    static class SaysMoreThanClaimed extends Changed {
        @Override
        BackendCapabilities claim(BackendCapabilities claimed) {
            return features(claimed, all -> all.remove(Feature.PER_DESCRIPTOR_RESULTS));
        }
    }

    static class HidesThatItNeedsItsTarget extends Changed {
        @Override
        protected Map<String, Object> options(String agent) {
            return with(
                    "with",
                    List.of("NEEDS_TARGET_PROGRESS"),
                    with("threading", "confined", super.options(agent)));
        }

        @Override
        BackendCapabilities claim(BackendCapabilities claimed) {
            return features(claimed, all -> all.remove(Feature.NEEDS_TARGET_PROGRESS));
        }
    }

    static class SumsNothing extends Changed {
        @Override
        BackendCapabilities claim(BackendCapabilities claimed) {
            return features(claimed, all -> all.add(Feature.CHECKSUM));
        }

        @Override
        protected boolean damageInTransit() {
            MemoryBackendProvider.damageNext(String.valueOf(options("damaged").get("fabric")));
            return true;
        }
    }

    static class HasNoBound extends Changed {
        @Override
        protected Map<String, Object> options(String agent) {
            return with("queue", 1 << 20, with("threading", "confined", super.options(agent)));
        }
    }
}
