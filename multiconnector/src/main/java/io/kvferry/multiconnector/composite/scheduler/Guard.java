// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.observe.EventSink;
import io.kvferry.spi.observe.TraceEvent;
import io.kvferry.toolkit.recovery.DefectRate;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

/// Isolates the composite from failures in the children's scheduler halves. An exception or an
/// answer that violates the contract is counted, logged and treated as a negative answer; other
/// children are not affected. A child that is off is not called and gets a negative answer for
/// everything.
///
/// Threading: scheduler thread only.
final class Guard {
    private static final Logger LOG = LoggerFactory.getLogger(Guard.class);
    private static final int LOGGED_PER_CHILD = 20;

    private final String instance;
    private final ChildNames names;
    private final EventSink events;
    private final long[] errors;
    private final long[] drained;
    private final boolean[] off;
    private final List<DefectRate> defects = new ArrayList<>();

    Guard(String instance, ChildNames names, EventSink events) {
        this.instance = instance;
        this.names = names;
        this.events = events;
        this.errors = new long[names.count()];
        this.drained = new long[names.count()];
        this.off = new boolean[names.count()];
        for (int i = 0; i < off.length; i++) {
            defects.add(new DefectRate());
        }
    }

    /// The child is called no more.
    void disable(int child) {
        off[child] = true;
    }

    /// Another half of the child takes over.
    void enable(int child) {
        off[child] = false;
        defects.get(child).reset();
    }

    boolean isOff(int child) {
        return off[child];
    }

    /// Turns the child off from the next step on. Must not allocate.
    void giveUp(int child, Failure why) {
        if (!off[child]) {
            defects.get(child).giveUp(why);
        }
    }

    /// Why the child should be given up, once.
    Optional<Failure> takeTooManyDefects(int child) {
        return defects.get(child).takeTooMany();
    }

    /// Calls a child. Returns `otherwise` when the child throws, returns null, or is off.
    <T> T call(int child, String what, String requestId, T otherwise, Supplier<T> body) {
        if (off[child]) {
            return otherwise;
        }
        try {
            T answer = body.get();
            if (answer != null) {
                return answer;
            }
            illegal(child, what, requestId, "answered null");
        } catch (Throwable e) { // Errors too, e.g. a class missing from the plugin
            failed(child, what, requestId, Failure.of(e), e);
        }
        return otherwise;
    }

    /// Runs a call into a child; false when it throws or is off.
    boolean run(int child, String what, String requestId, Runnable body) {
        return call(
                child,
                what,
                requestId,
                false,
                () -> {
                    body.run();
                    return true;
                });
    }

    /// A child answered what the contract does not allow.
    void illegal(int child, String what, String requestId, String detail) {
        failed(child, what, requestId, new Failure(ErrorCode.INTERNAL, what + " " + detail), null);
    }

    private void failed(
            int child, String what, String requestId, Failure failure, @Nullable Throwable thrown) {
        defects.get(child).add(what + ": " + failure);
        if (errors[child]++ < LOGGED_PER_CHILD) {
            // A failure with a specific code needs no stack trace; INTERNAL marks a defect.
            LOG.warn(
                    "{}/{}: {} failed{}: {}",
                    instance,
                    names.name(child),
                    what,
                    requestId.isEmpty() ? "" : " for request " + requestId,
                    failure,
                    failure.code() == ErrorCode.INTERNAL ? thrown : null);
        }
        incident(requestId, child, what + " failed", failure.toString());
    }

    /// Tells of something that happened to a child.
    void incident(String requestId, int child, String kind, String detail) {
        if (!events.equals(EventSink.NONE)) {
            events.emit(
                    new TraceEvent.Incident(
                            requestId,
                            "child-failure",
                            instance,
                            Map.of("child", names.name(child), "what", kind, "detail", detail)));
        }
    }

    /// Calls of a child that threw, or were answered illegally, since this was last asked.
    long drainErrors(int child) {
        long count = errors[child] - drained[child];
        drained[child] = errors[child];
        return count;
    }
}
