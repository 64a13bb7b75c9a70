// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayDeque;
import java.util.Deque;

/// Closes resources in reverse order. A failure to close one does not keep the others open.
public final class CloseStack implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(CloseStack.class);

    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    /// Remembers a resource to close; returns it.
    public <T extends AutoCloseable> T push(T resource) {
        open.push(resource);
        return resource;
    }

    /// Closes all because of `cause`, which gets what goes wrong as suppressed exceptions.
    public void closeAfter(Throwable cause) {
        while (!open.isEmpty()) {
            try {
                open.pop().close();
            } catch (Throwable e) {
                cause.addSuppressed(e);
            }
        }
    }

    @Override
    public void close() {
        while (!open.isEmpty()) {
            var resource = open.pop();
            try {
                resource.close();
            } catch (Throwable e) { // plugins among them; the rest must still close
                LOG.warn("closing {} failed", resource, e);
            }
        }
    }
}
