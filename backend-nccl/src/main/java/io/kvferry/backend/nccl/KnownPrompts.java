// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.wire.PromptMark;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.toolkit.bounded.RecentMap;

import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/// The prompts that engines have handed over with protocol 0, by transfer. They outlive the
/// scheduler half that has seen them: tensors of a prompt may still come, or lie here, when the
/// half is opened again, and their messages do not say which prompt they are of.
///
/// Threading: any thread.
final class KnownPrompts {
    private static final int MOST_ENGINES = 64;

    /// Engine ids differ whenever a configuration is read; where an engine listens stays.
    private record EngineKey(String instance, String host, int port, int dataParallelRank) {}

    private final ReentrantLock lock = new ReentrantLock();
    private final Map<EngineKey, Remembered<String, PromptMark>> engines =
            new RecentMap<>(MOST_ENGINES);

    /// Those of one engine, also when it opens its connector again.
    final class OfEngine {
        private final Remembered<String, PromptMark> marks;

        private OfEngine(Remembered<String, PromptMark> marks) {
            this.marks = marks;
        }

        /// Whether no other prompt has that transfer; from now on this one has it.
        boolean claim(String transfer, PromptMark mark) {
            lock.lock();
            try {
                var known = marks.get(transfer);
                if (known == null) {
                    marks.put(transfer, mark);
                }
                return known == null || known.equals(mark);
            } finally {
                lock.unlock();
            }
        }
    }

    OfEngine of(SchedulerContext context) {
        var settings = P2pSettings.from(context.options());
        var key =
                new EngineKey(
                        context.instance(),
                        context.config().ip(),
                        settings.port(context.config(), 0, context.engine().worldSize()),
                        context.engine().dataParallelRank());
        lock.lock();
        try {
            return new OfEngine(engines.computeIfAbsent(key, _ -> Remembered.byText()));
        } finally {
            lock.unlock();
        }
    }
}
