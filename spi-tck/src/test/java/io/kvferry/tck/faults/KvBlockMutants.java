// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import static java.util.stream.Collectors.toSet;

import io.kvferry.spi.kv.BlockTable;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.LoadAssignment;
import io.kvferry.spi.kv.MergedReport;
import io.kvferry.spi.kv.SchedulerConnector;
import io.kvferry.spi.kv.StepView;
import io.kvferry.spi.kv.TransferId;
import io.kvferry.spi.kv.WorkerConnector;
import io.kvferry.spi.kv.WorkerStep;
import io.kvferry.spi.memory.KvRegion;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.wire.Payload;
import io.kvferry.tck.faults.KvMutants.Mutant;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.ValueLayout;
import java.lang.reflect.Method;
import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiConsumer;
import java.util.function.BiPredicate;

/// [KvMutants] with defects in what they do to the engine's blocks, and when.
final class KvBlockMutants {
    private KvBlockMutants() {}

    /// A worker half that writes into every block of its first region before the calls that `when`
    /// picks.
    private static WorkerConnector scribbling(
            WorkerConnector half, BiPredicate<Method, @Nullable Object[]> when) {
        var regions = new ArrayList<KvRegion>();
        return Interceptor.wrap(
                WorkerConnector.class,
                half,
                (method, arguments, proceed) -> {
                    if (method.getName().equals("registerRegions")
                            && arguments[0] instanceof List<?> all) {
                        all.forEach(region -> regions.add((KvRegion) region));
                    }
                    if (when.test(method, arguments)) {
                        var region = regions.getFirst();
                        for (int block = 0; block < region.blocks(); block++) {
                            region.block(block).set(ValueLayout.JAVA_BYTE, 1, (byte) 0x33);
                        }
                    }
                    return proceed.run();
                });
    }

    static class NamesOneGroupOnly extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return KvMutants.reporting(
                    half, all -> all.stream().map(NamesOneGroupOnly::cut).toList());
        }

        private static Completion cut(Completion completion) {
            if (!(completion.result() instanceof Completion.Failed(var failure, var blocks))) {
                return completion;
            }
            var first = blocks.stream().filter(failed -> failed.group() == 0).toList();
            return new Completion(
                    completion.id(), completion.rank(), new Completion.Failed(failure, first));
        }
    }

    static class WritesIntoAnyBlock extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return scribbling(half, (method, _) -> method.getName().equals("endStep"));
        }
    }

    static class WritesAfterARevocation extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            var armed = new boolean[1];
            return scribbling(
                    half,
                    (method, arguments) -> {
                        if (!method.getName().equals("beginStep")) {
                            return false;
                        }
                        boolean now = armed[0];
                        armed[0] |= !((WorkerStep) arguments[0]).revoked().isEmpty();
                        return now;
                    });
        }
    }

    /// Answers a revocation at once but still performs the load when its plan arrives.
    static class LoadsWhatWasRevoked extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            var kept = new Payload[] {Payload.EMPTY};
            var answered = new ArrayList<Completion>();
            var dropped = new HashSet<TransferId>();
            var loading =
                    Defects.instead(
                            WorkerConnector.class,
                            half,
                            "beginStep",
                            (method, arguments, _) -> {
                                var step = (WorkerStep) arguments[0];
                                for (var id : step.revoked()) {
                                    answered.add(new Completion(id, 0, new Completion.Revoked()));
                                    dropped.add(id);
                                }
                                boolean later = !step.revoked().isEmpty();
                                var plan = step.plan().isEmpty() ? kept[0] : step.plan();
                                kept[0] = later ? plan : Payload.EMPTY;
                                half.beginStep(
                                        new WorkerStep(
                                                step.number(),
                                                later ? Payload.EMPTY : plan,
                                                List.of(),
                                                step.forward(),
                                                step.limit()));
                                return null;
                            });
            return KvMutants.reporting(
                    loading,
                    completions -> {
                        var all = new ArrayList<>(completions);
                        all.removeIf(completion -> dropped.contains(completion.id()));
                        all.addAll(answered);
                        answered.clear();
                        return all;
                    });
        }
    }

    static class SyncLoadsComeLate extends Mutant {
        @Override
        String load() {
            return "sync";
        }

        @Override
        WorkerConnector worker(WorkerConnector half) {
            var late = new ArrayList<Completion>();
            return KvMutants.reporting(
                    half,
                    completions -> {
                        var now = List.copyOf(late);
                        late.clear();
                        late.addAll(completions);
                        return now;
                    });
        }
    }

    static class SavesAStepLate extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            var late = new ArrayList<WorkerStep>();
            return Interceptor.wrap(
                    WorkerConnector.class,
                    half,
                    (method, arguments, proceed) -> {
                        if (method.getName().equals("endStep")
                                && arguments[0] instanceof WorkerStep step) {
                            late.add(step);
                            return null;
                        }
                        if (method.getName().equals("beginStep") && !late.isEmpty()) {
                            half.endStep(late.removeFirst(), Set.of());
                        }
                        return proceed.run();
                    });
        }
    }

    /// Plans saves behind a load as if it had succeeded already.
    static class SavesBehindFailedLoads extends Mutant {
        @Override
        String load() {
            return "sync";
        }

        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            var assigned = new ArrayList<Completion>();
            return Interceptor.wrap(
                    SchedulerConnector.class,
                    half,
                    (_, arguments, proceed) -> {
                        if (arguments.length == 3
                                && arguments[2] instanceof LoadAssignment load
                                && !load.isEmpty()) {
                            assigned.add(
                                    new Completion(
                                            load.id(),
                                            Completion.ALL_RANKS,
                                            new Completion.Completed(0)));
                        }
                        if (arguments.length == 1 && arguments[0] instanceof StepView step) {
                            half.onReport(new MergedReport(step.number(), assigned, List.of()));
                            assigned.clear();
                        }
                        return proceed.run();
                    });
        }
    }

    /// A worker half that is told something else about what was not computed.
    private static WorkerConnector told(
            WorkerConnector half, BiConsumer<WorkerStep, Set<String>> end) {
        return Defects.instead(
                WorkerConnector.class,
                half,
                "endStep",
                (_, arguments, _) -> {
                    if (arguments[0] instanceof WorkerStep step
                            && arguments[1] instanceof Set<?> ids) {
                        end.accept(step, ids.stream().map(String::valueOf).collect(toSet()));
                    }
                    return null;
                });
    }

    static class SavesWhatWasNotComputed extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return told(half, (step, _) -> half.endStep(step, Set.of()));
        }
    }

    static class DropsAllSavesOfSuchAStep extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return told(
                    half,
                    (step, notComputed) ->
                            half.endStep(
                                    step, notComputed.isEmpty() ? notComputed : new Everyone()));
        }

        /// Contains every request.
        private static final class Everyone extends AbstractSet<String> {
            @Override
            public boolean contains(Object request) {
                return true;
            }

            @Override
            public Iterator<String> iterator() {
                throw new UnsupportedOperationException("too many");
            }

            @Override
            public int size() {
                return Integer.MAX_VALUE;
            }
        }
    }

    static class TakesDeviceMemory extends Mutant {
        @Override
        WorkerConnector worker(WorkerConnector half) {
            return Defects.instead(
                    WorkerConnector.class, half, "registerRegions", (_, _, _) -> null);
        }
    }

    /// Loads into some block where a position has none.
    static class ForgetsWindows extends Mutant {
        @Override
        SchedulerConnector scheduler(SchedulerConnector half) {
            return Interceptor.wrap(
                    SchedulerConnector.class,
                    half,
                    (_, arguments, proceed) -> {
                        if (arguments.length == 3 && arguments[1] instanceof BlockTable table) {
                            arguments[1] = new Filled(table);
                        }
                        return proceed.run();
                    });
        }

        /// Says block 0 where there is none.
        private record Filled(BlockTable table) implements BlockTable {
            @Override
            public int groups() {
                return table.groups();
            }

            @Override
            public int count(int group) {
                return table.count(group);
            }

            @Override
            public int block(int group, int position) {
                return Math.max(0, table.block(group, position));
            }
        }
    }

    /// Frees the cache that it provided when it is closed, while the engine still has it.
    static final class FreesTheCacheTooSoon extends Mutant {
        @Override
        protected Map<String, Object> options() {
            var options = new HashMap<>(super.options());
            options.put("memory", "connector");
            return options;
        }

        @Override
        WorkerConnector worker(WorkerConnector half) {
            var given = new ArrayList<ProvidedMemory>();
            return Interceptor.wrap(
                    WorkerConnector.class,
                    half,
                    (method, _, proceed) -> {
                        var result = proceed.run();
                        if (result instanceof Optional<?> some
                                && some.orElse(null) instanceof ProvidedMemory memory) {
                            given.add(memory);
                        }
                        if (method.getName().equals("close")) {
                            given.forEach(ProvidedMemory::close);
                            given.clear();
                        }
                        return result;
                    });
        }
    }
}
