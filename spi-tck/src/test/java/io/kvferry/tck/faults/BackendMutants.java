// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.TransferBackend;
import io.kvferry.spi.transfer.TransferBackendProvider;
import io.kvferry.spi.transfer.TransferRequest;
import io.kvferry.tck.faults.FaultPlan.Fault;
import io.kvferry.tck.memory.MemoryBackendProvider;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.EnumSet;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;

/// Transfer backends with one defect each, as subclasses of the contract; run by
/// [BackendMutantsTest].
final class BackendMutants {
    private BackendMutants() {}

    abstract static class Mutant extends TransferBackendContract {
        private final String fabric = "mutant-" + UUID.randomUUID();

        @Override
        protected TransferBackendProvider provider() {
            return new MemoryBackendProvider();
        }

        @Override
        protected Map<String, Object> options(String agent) {
            return Map.of("fabric", fabric);
        }

        /// Short, because a mutant that does not act at once never acts.
        @Override
        protected Duration limit() {
            return Duration.ofMillis(500);
        }
    }

    static class None extends Mutant {
        @Override
        protected Duration limit() {
            return Duration.ofSeconds(15);
        }
    }

    /// Behaves as a [FaultPlan] says.
    abstract static class Faulty extends Mutant {
        private final FaultPlan plan;

        Faulty(Fault fault) {
            plan = FaultPlan.seeded(1).with(fault, 1);
        }

        @Override
        protected TransferBackendProvider provider() {
            return FaultyBackend.wrap(super.provider(), plan);
        }
    }

    static class DamagesBytes extends Faulty {
        DamagesBytes() {
            super(Fault.CORRUPT);
        }
    }

    static class NotifiesTwice extends Faulty {
        NotifiesTwice() {
            super(Fault.DUPLICATE);
        }
    }

    static class NeverCompletes extends Faulty {
        NeverCompletes() {
            super(Fault.LOSE);
        }
    }

    static class DoesWhatItDoesNotClaim extends Mutant {
        @Override
        protected TransferBackendProvider provider() {
            return Interceptor.wrap(
                    TransferBackendProvider.class,
                    super.provider(),
                    (method, _, proceed) -> less(proceed.run()));
        }

        private static @Nullable Object less(@Nullable Object result) {
            return result instanceof BackendCapabilities claimed ? without(claimed) : result;
        }

        private static BackendCapabilities without(BackendCapabilities claimed) {
            var features = EnumSet.copyOf(claimed.features());
            features.remove(BackendCapabilities.Feature.NOTIFY);
            return new BackendCapabilities(
                    claimed.routes(),
                    features,
                    claimed.threading(),
                    claimed.maxDescriptors(),
                    claimed.maxBytes(),
                    claimed.alignment());
        }
    }

    /// Forgets its peers only by half: what was prepared for them still goes out.
    static class KeepsDroppedPeers extends Mutant {
        @Override
        protected TransferBackendProvider provider() {
            return Interceptor.wrap(
                    TransferBackendProvider.class,
                    super.provider(),
                    (_, _, proceed) -> {
                        var result = proceed.run();
                        return result instanceof TransferBackend opened
                                ? Interceptor.wrap(
                                        TransferBackend.class,
                                        opened,
                                        (method, arguments, go) ->
                                                method.getName().equals("dropPeer")
                                                        ? null
                                                        : go.run())
                                : result;
                    });
        }
    }

    /// Ignores that a deadline has passed.
    static class IgnoresDeadlines extends Mutant {
        @Override
        protected TransferBackendProvider provider() {
            return Interceptor.wrap(
                    TransferBackendProvider.class,
                    super.provider(),
                    (_, _, proceed) -> {
                        var result = proceed.run();
                        return result instanceof TransferBackend opened ? patient(opened) : result;
                    });
        }

        private static TransferBackend patient(TransferBackend opened) {
            return Interceptor.wrap(
                    TransferBackend.class,
                    opened,
                    (method, arguments, proceed) ->
                            method.getName().equals("submit")
                                            && arguments[0] instanceof TransferRequest request
                                    ? opened.submit(
                                            new TransferRequest(
                                                    request.operation(),
                                                    request.local(),
                                                    request.remote(),
                                                    Optional.empty(),
                                                    Deadline.in(Duration.ofMinutes(1)),
                                                    ""))
                                    : proceed.run());
        }
    }
}
