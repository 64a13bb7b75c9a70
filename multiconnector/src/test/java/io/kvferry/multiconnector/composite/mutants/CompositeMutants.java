// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.mutants;

import io.kvferry.multiconnector.composite.MultiCompositeTckTest;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.BlockPool;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.ConnectorCapabilities.Feature;
import io.kvferry.spi.kv.KvConnectorProvider;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.StepReport;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.tck.faults.Interceptor;

import org.jspecify.annotations.Nullable;

import java.lang.reflect.Method;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.UnaryOperator;

/// Composites of KV connectors with one defect each; [CompositeMutantsTest] expects the contract to
/// find them.
final class CompositeMutants {
    private CompositeMutants() {}

    abstract static class Mutant extends MultiCompositeTckTest {
        @Override
        protected KvConnectorProvider composite() {
            return Interceptor.wrap(
                    KvConnectorProvider.class,
                    super.composite(),
                    (_, arguments, proceed) -> {
                        if (arguments.length > 0) {
                            arguments[0] = context(arguments[0]);
                        }
                        return switch (proceed.run()) {
                            case SchedulerConnector half -> scheduler(half);
                            case WorkerConnector half -> worker(half);
                            case ConnectorCapabilities claimed -> capabilities(claimed);
                            case Object other -> other;
                            case null -> null;
                        };
                    });
        }

        @Nullable Object context(@Nullable Object context) {
            return context;
        }

        SchedulerConnector scheduler(SchedulerConnector half) {
            return half;
        }

        WorkerConnector worker(WorkerConnector half) {
            return half;
        }

        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return claimed;
        }
    }

    /// A half with one method of another kind.
    static <T> T instead(Class<T> type, T half, String method, Interceptor.Around other) {
        return Interceptor.wrap(
                type,
                half,
                (called, arguments, proceed) ->
                        called.getName().equals(method)
                                ? other.call(called, arguments, proceed)
                                : proceed.run());
    }

    /// A worker half whose completions are changed.
    static <T> T completing(Class<T> type, T half, UnaryOperator<Completion> change) {
        return Interceptor.wrap(
                type,
                half,
                (_, _, proceed) -> {
                    var result = proceed.run();
                    return result instanceof StepReport report
                            ? new StepReport(
                                    report.rank(),
                                    report.step(),
                                    report.completions().stream().map(change).toList(),
                                    report.payload(),
                                    report.stats(),
                                    report.events())
                            : result;
                });
    }

    static Object wasted(Method method, @Nullable Object[] arguments, Interceptor.Proceed proceed)
            throws Throwable {
        if (proceed.run() instanceof Optional<?> some
                && some.orElse(null) instanceof ProvidedMemory memory) {
            memory.close();
        }
        return Optional.empty();
    }

    /// Finds nothing any more once a child had trouble: threw, answered nonsense, or did not load.
    static class DiesWithAChild extends Mutant {
        private final Trouble trouble = new Trouble();

        @Override
        @Nullable Object context(@Nullable Object context) {
            return trouble.watching(context);
        }

        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return instead(
                    SchedulerConnector.class,
                    half,
                    "lookup",
                    (_, _, proceed) -> trouble.seen() ? LookupResult.MISS : proceed.run());
        }

        @Override
        WorkerConnector worker(WorkerConnector half) {
            return completing(WorkerConnector.class, half, trouble::watching);
        }
    }

    static class LosesDeadlines extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return instead(
                    SchedulerConnector.class,
                    half,
                    "pendingWork",
                    (_, _, _) -> Optional.<Deadline>empty());
        }
    }

    static class SleepsOn extends Mutant {
        @Override
        @Nullable Object context(@Nullable Object context) {
            return context instanceof WorkerContext c
                    ? new WorkerContext(
                            c.instance(),
                            c.config(),
                            c.options(),
                            c.engine(),
                            c.rank(),
                            c.host().with(c.host().events(), () -> {}))
                    : context;
        }
    }

    /// Asks its children for memory, and lets the engine allocate all the same.
    static class WastesMemory extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return instead(WorkerConnector.class, half, "provideMemory", CompositeMutants::wasted);
        }
    }

    static class LosesLayers extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return instead(WorkerConnector.class, half, "saveLayer", (_, _, _) -> null);
        }
    }

    static class MixesRanksUp extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return instead(
                    SchedulerConnector.class,
                    half,
                    "onHandshakes",
                    (_, arguments, proceed) -> {
                        if (arguments[0] instanceof List<?> byRank) {
                            arguments[0] = byRank.reversed();
                        }
                        return proceed.run();
                    });
        }
    }

    static class CallsEveryFailureItsOwn extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return completing(
                    WorkerConnector.class,
                    half,
                    completion ->
                            completion.result() instanceof Completion.Failed(_, var blocks)
                                    ? new Completion(
                                            completion.id(),
                                            completion.rank(),
                                            new Completion.Failed(
                                                    new Failure(ErrorCode.INTERNAL, "mutant"),
                                                    blocks))
                                    : completion);
        }
    }

    static class RenewsNothing extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return instead(
                    SchedulerConnector.class,
                    half,
                    "bindBlockPool",
                    (_, arguments, proceed) -> {
                        if (arguments[0] instanceof BlockPool pool) {
                            arguments[0] =
                                    instead(
                                            BlockPool.class,
                                            pool,
                                            "renewHold",
                                            (_, _, _) -> Optional.<Deadline>empty());
                        }
                        return proceed.run();
                    });
        }
    }

    static class FitsEverything extends Mutant {
        @Override
        ConnectorCapabilities capabilities(ConnectorCapabilities claimed) {
            return new ConnectorCapabilities(
                    EnumSet.allOf(Feature.class), claimed.requiredLayout());
        }
    }

    static class HidesWhatWasNotComputed extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return instead(
                    WorkerConnector.class,
                    half,
                    "endStep",
                    (_, arguments, _) -> {
                        if (arguments[0] instanceof WorkerStep step) {
                            half.endStep(step, Set.of());
                        }
                        return null;
                    });
        }
    }

    static class KeepsRevocationsToItself extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return instead(SchedulerConnector.class, half, "onRevoked", (_, _, _) -> null);
        }
    }
}
