// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.ec.EcItem;
import io.kvferry.spi.ec.EcSchedulerConnector;
import io.kvferry.spi.ec.EcWorkerConnector;
import io.kvferry.spi.ec.EncoderCache;
import io.kvferry.spi.ec.EncoderOutput;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.memory.MemoryRange;
import io.kvferry.spi.memory.ProvidedMemory;
import io.kvferry.spi.observe.CacheEvent;
import io.kvferry.tck.faults.EcMutants.Mutant;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

/// [EcMutants] with defects in what they do with the cache's memory, with many items and over time.
final class EcMemoryMutants {
    private EcMemoryMutants() {}

    static class AnswersForTheFirst extends Mutant {
        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            var hits = new ArrayList<LookupResult>();
            return Defects.instead(
                    EcSchedulerConnector.class,
                    half,
                    "lookup",
                    (_, arguments, proceed) -> {
                        var answer = proceed.run();
                        if (answer instanceof LookupResult.Hit hit) {
                            hits.add(hit);
                        }
                        return hits.isEmpty() || !(arguments[0] instanceof EcItem item)
                                ? answer
                                : LookupResult.hit(
                                        item.embeddings(),
                                        LookupResult.LoadMode.ASYNC,
                                        "mutant",
                                        LookupResult.Tier.HOST);
                    });
        }
    }

    static class WritesBehindItsRoom extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return EcMutants.caching(
                    half,
                    cache ->
                            Defects.instead(
                                    EncoderCache.class,
                                    cache,
                                    "allocate",
                                    (_, _, proceed) -> {
                                        var room =
                                                (EncoderOutput)
                                                        Objects.requireNonNull(proceed.run());
                                        room.memory()
                                                .hostSegment()
                                                .set(
                                                        ValueLayout.JAVA_BYTE,
                                                        room.offset() + room.bytes(),
                                                        (byte) 1);
                                        return room;
                                    }));
        }
    }

    /// Says TIMEOUT, and then that it is closed, while a thread still writes.
    static class SaysClosedWhileItWrites extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            var memory = new AtomicReference<@Nullable MemoryRange>();
            var asked = new AtomicInteger();
            return Interceptor.wrap(
                    EcWorkerConnector.class,
                    half,
                    (called, arguments, proceed) -> {
                        if (called.getName().equals("registerMemory")) {
                            memory.set((MemoryRange) arguments[0]);
                        }
                        if (!called.getName().equals("close")) {
                            return proceed.run();
                        }
                        if (asked.incrementAndGet() == 1) {
                            proceed.run();
                            var cache = Objects.requireNonNull(memory.get()).hostSegment();
                            Defects.writeOn(() -> cache.fill((byte) 7));
                            throw new KvFerryException(ErrorCode.TIMEOUT, "threads still write");
                        }
                        return null;
                    });
        }
    }

    /// Says that a load is complete, and gives the room back instead.
    static class PublishesNothing extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return EcMutants.caching(
                    half,
                    cache ->
                            Defects.instead(
                                    EncoderCache.class,
                                    cache,
                                    "publish",
                                    (_, arguments, _) -> {
                                        cache.discard(String.valueOf(arguments[0]));
                                        return null;
                                    }));
        }
    }

    static class LosesOneOfMany extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return EcMutants.reporting(
                    half,
                    completions ->
                            completions.stream()
                                    .filter(end -> !end.id().subject().endsWith("many 31"))
                                    .toList());
        }
    }

    static class AnnouncesWhatItDidNotSave extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            var saved = new ArrayList<String>();
            var watched =
                    Defects.instead(
                            EcWorkerConnector.class,
                            half,
                            "save",
                            (_, arguments, proceed) -> {
                                if (arguments[0] instanceof EcItem item) {
                                    saved.add(item.hash());
                                }
                                return proceed.run();
                            });
            return Defects.telling(
                    EcWorkerConnector.class,
                    watched,
                    _ -> {
                        if (saved.isEmpty()) {
                            return List.of();
                        }
                        var told =
                                new CacheEvent.ItemsStored(
                                        "mutant", LookupResult.Tier.HOST, List.copyOf(saved));
                        saved.clear();
                        return List.<CacheEvent>of(told);
                    });
        }
    }

    /// Writes a second copy of an item into the first one, a piece at a time.
    static class SpoilsWhatIsThere extends Mutant {
        private final Set<String> saved = new HashSet<>();

        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return Defects.instead(
                    EcWorkerConnector.class,
                    half,
                    "save",
                    (_, arguments, proceed) -> {
                        var result = proceed.run();
                        if (arguments[0] instanceof EcItem item && !saved.add(item.hash())) {
                            damageStore();
                        }
                        return result;
                    });
        }
    }

    static class LoadsEachItemOnce extends Mutant {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            Map<String, EncoderOutput> known = new ConcurrentHashMap<>();
            return EcMutants.caching(
                    half,
                    cache ->
                            Interceptor.wrap(
                                    EncoderCache.class,
                                    cache,
                                    (method, arguments, proceed) -> {
                                        var result = proceed.run();
                                        if (arguments[0] instanceof EcItem item
                                                && result instanceof EncoderOutput room) {
                                            known.put(item.hash(), room);
                                        }
                                        return method.getName().equals("get")
                                                ? Optional.ofNullable(known.get(arguments[0]))
                                                : result;
                                    }));
        }
    }

    static class IsNeverIdle extends Mutant {
        @Override
        EcSchedulerConnector scheduler(EcSchedulerConnector half) {
            return Defects.instead(
                    EcSchedulerConnector.class,
                    half,
                    "pendingWork",
                    (_, _, _) -> Optional.of(Deadline.in(Duration.ZERO)));
        }
    }

    /// Provides memory of its own.
    abstract static class Providing extends Mutant {
        @Override
        protected Map<String, Object> options() {
            var options = new HashMap<>(super.options());
            options.put("memory", "connector");
            return options;
        }
    }

    static class FreesTheMemoryTooSoon extends Providing {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            var arena = Arena.ofShared();
            return Interceptor.wrap(
                    EcWorkerConnector.class,
                    half,
                    (method, arguments, proceed) -> {
                        if (method.getName().equals("provideMemory")
                                && arguments[0] instanceof Long bytes) {
                            return Optional.of(new Memory(arena, bytes));
                        }
                        var result = proceed.run();
                        if (method.getName().equals("close") && arena.scope().isAlive()) {
                            arena.close();
                        }
                        return result;
                    });
        }

        private record Memory(MemoryRange.Host range) implements ProvidedMemory {
            Memory(Arena arena, long bytes) {
                this(new MemoryRange.Host(arena.allocate(bytes, 4096)));
            }

            @Override
            public void close() {
                // freed with the half
            }
        }
    }

    static class ProvidesUsedMemory extends Providing {
        @Override
        EcWorkerConnector worker(EcWorkerConnector half) {
            return Defects.instead(
                    EcWorkerConnector.class,
                    half,
                    "provideMemory",
                    (_, _, proceed) -> {
                        var given = (Optional<?>) proceed.run();
                        if (given != null && given.orElse(null) instanceof ProvidedMemory memory) {
                            memory.range().segment().set(ValueLayout.JAVA_BYTE, 5000, (byte) 1);
                        }
                        return given;
                    });
        }
    }

    static class SignalsNothing extends Mutant {
        @Override
        @Nullable Object context(@Nullable Object context) {
            return switch (context) {
                case SchedulerContext c ->
                        new SchedulerContext(
                                c.instance(),
                                c.config(),
                                c.options(),
                                c.engine(),
                                c.host().with(c.host().events(), () -> {}));
                case WorkerContext c ->
                        new WorkerContext(
                                c.instance(),
                                c.config(),
                                c.options(),
                                c.engine(),
                                c.rank(),
                                c.host().with(c.host().events(), () -> {}));
                case null, default -> context;
            };
        }
    }
}
