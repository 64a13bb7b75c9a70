// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.mutants;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.observe.TraceEvent;

import org.jspecify.annotations.Nullable;

/// Whether a child of a composite had trouble: the composite said so, or a transfer did not end
/// well.
///
/// Threading: any thread.
final class Trouble {
    private volatile boolean seen;

    boolean seen() {
        return seen;
    }

    Completion watching(Completion completion) {
        seen |= !(completion.result() instanceof Completion.Completed);
        return completion;
    }

    /// The context of a half, with events that are listened to.
    @Nullable Object watching(@Nullable Object context) {
        return switch (context) {
            case SchedulerContext c ->
                    new SchedulerContext(
                            c.instance(), c.config(), c.options(), c.engine(), watching(c.host()));
            case WorkerContext c ->
                    new WorkerContext(
                            c.instance(),
                            c.config(),
                            c.options(),
                            c.engine(),
                            c.rank(),
                            watching(c.host()));
            case null, default -> context;
        };
    }

    private HostServices watching(HostServices host) {
        return host.with(
                event -> {
                    seen |= event instanceof TraceEvent.Incident;
                    host.events().emit(event);
                },
                host::wake);
    }
}
