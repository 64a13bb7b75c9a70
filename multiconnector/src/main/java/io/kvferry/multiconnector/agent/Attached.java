// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.toolkit.bounded.HeapPause;

import org.jspecify.annotations.Nullable;

import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/// A callback on a transfer that a backend has accepted: one that is not attached is never told of
/// the end. Runs once, however often it is attached.
final class Attached<T> implements Consumer<T> {
    private final Consumer<T> callback;
    private final AtomicBoolean ran = new AtomicBoolean();

    private Attached(Consumer<T> callback) {
        this.callback = callback;
    }

    /// Attaches a callback, tried for some seconds where the heap is full. What the callback throws
    /// is not tried again.
    ///
    /// @throws OutOfMemoryError when there was no memory for it in all that time
    static <T> void to(CompletionStage<T> stage, Consumer<T> callback) {
        @Nullable Attached<T> once = null;
        for (int attempt = 1; ; attempt++) {
            try {
                if (once == null) {
                    once = new Attached<>(callback);
                }
                stage.thenAccept(once);
                return;
            } catch (OutOfMemoryError e) {
                if (once != null && once.ran.get()) {
                    return;
                }
                HeapPause.after(attempt, e);
            }
        }
    }

    @Override
    public void accept(T value) {
        if (ran.compareAndSet(false, true)) {
            callback.accept(value);
        }
    }
}
