// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.recovery;

import io.kvferry.toolkit.bounded.LoopReport;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.function.Consumer;

/// The parts of something that is being opened: closed in reverse order unless all of it was
/// opened, whatever was thrown.
///
/// ```java
/// try (var parts = new OpeningParts()) {
///     port = parts.add(bind(), Port::close);
///     loop = parts.add(new SerialLoop("name"), SerialLoop::close);
///     parts.keep();
/// }
/// ```
///
/// Threading: one thread.
public final class OpeningParts implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(OpeningParts.class);

    private final Deque<Runnable> closings = new ArrayDeque<>();

    /// @param closing what is done with the part if the rest cannot be opened
    public <T> T add(T part, Consumer<? super T> closing) {
        boolean added = false;
        try {
            closings.push(() -> closing.accept(part));
            added = true;
            return part;
        } finally {
            if (!added) {
                closing.accept(part);
            }
        }
    }

    /// All is open.
    public void keep() {
        closings.clear();
    }

    @Override
    public void close() {
        // Without an iterator: what could not be opened may have lacked memory.
        for (Runnable closing = closings.poll(); closing != null; closing = closings.poll()) {
            try {
                closing.run();
            } catch (RuntimeException | Error e) { // what did not open is thrown already
                LoopReport.WARN.log(LOG, "a part of what could not be opened was not closed", e);
            }
        }
    }
}
