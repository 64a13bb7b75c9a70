// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.memory.MemoryKind;
import io.kvferry.spi.transfer.BackendCapabilities;
import io.kvferry.spi.transfer.Route;
import io.kvferry.spi.transfer.TransferBackend;

import java.util.Optional;
import java.util.function.Function;
import java.util.function.Supplier;

/// One open backend of an agent, and the thread rule under which it may be called.
///
/// Threading: any thread; calls to a CONFINED backend go to its loop.
final class BackendSlot {
    private final String name;
    private final int priority;
    private final TransferBackend backend;
    private final BackendCapabilities capabilities;
    private final Optional<OwnerLoop> loop;

    BackendSlot(
            String name,
            int priority,
            TransferBackend backend,
            BackendCapabilities capabilities,
            Optional<OwnerLoop> loop) {
        this.name = name;
        this.priority = priority;
        this.backend = backend;
        this.capabilities = capabilities;
        this.loop = loop;
    }

    String name() {
        return name;
    }

    int priority() {
        return priority;
    }

    BackendCapabilities capabilities() {
        return capabilities;
    }

    Optional<OwnerLoop> loop() {
        return loop;
    }

    boolean takes(MemoryKind kind) {
        return capabilities.routes().stream()
                .anyMatch(route -> route.local() == kind || route.remote() == kind);
    }

    boolean reachesPeers() {
        return capabilities.routes().stream()
                .anyMatch(route -> route.scope() == Route.Scope.REMOTE);
    }

    /// Calls the backend and waits for the answer.
    <T> T call(String what, Function<TransferBackend, T> body) {
        Supplier<T> call = () -> body.apply(backend);
        return loop.isPresent() ? loop.get().call(name + "." + what, call) : call.get();
    }

    /// Gives something back that a backend handed out. One that is closed has taken it back
    /// already.
    void release(String what, Runnable body) {
        try {
            call(
                    what,
                    _ -> {
                        body.run();
                        return true;
                    });
        } catch (KvFerryException e) {
            if (e.code() != ErrorCode.CLOSED) {
                throw e;
            }
        }
    }

    /// Starts a call without waiting: right here, or on the loop.
    ///
    /// @return false when the loop has no room
    boolean start(Runnable body) {
        if (loop.isPresent()) {
            return loop.get().execute(body);
        }
        body.run();
        return true;
    }

    TransferBackend backend() {
        return backend;
    }

    int poll() {
        return loop.map(OwnerLoop::poll).orElse(0);
    }

    /// Closes the backend on its thread, then ends the thread.
    void close() {
        try {
            call(
                    "close",
                    open -> {
                        loop.ifPresent(owner ->
                                owner.progress(() -> 0)); // the loop goes on a moment longer
                        open.close();
                        return true;
                    });
        } finally {
            loop.ifPresent(OwnerLoop::close);
        }
    }
}
