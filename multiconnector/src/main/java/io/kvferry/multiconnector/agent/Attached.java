// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.toolkit.bounded.HeapPause;

import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;

/// Callbacks on transfers that a backend has accepted: one that is not attached is never told of
/// the end.
final class Attached {
    private Attached() {}

    /// Attaches a callback, tried for some seconds where the heap is full.
    ///
    /// @throws OutOfMemoryError when there was no memory for it in all that time
    static <T> void to(CompletionStage<T> stage, Consumer<T> callback) {
        for (int attempt = 1; ; attempt++) {
            try {
                stage.thenAccept(callback);
                return;
            } catch (OutOfMemoryError e) {
                HeapPause.after(attempt, e);
            }
        }
    }
}
