// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.time.Duration;

/// Starts the workers of an engine that do not run in its process. The engine has one for child
/// JVMs; another one starts them in containers, under another user, or in threads of a test.
///
/// Threading: one thread at a time.
@FunctionalInterface
public interface WorkerLauncher {
    /// Starts a worker that runs [io.kvferry.engine.worker.process.WorkerMain#serve] over the other
    /// ends of the link's streams.
    Link launch(int rank) throws IOException;

    /// A worker as its engine sees it.
    ///
    /// Threading: any thread; the streams one thread each.
    interface Link {
        /// What the worker writes; ends when the worker does.
        InputStream in();

        /// What the worker reads; fails when the worker has ended.
        OutputStream out();

        /// Ends the worker at once, and with it both streams.
        void kill();

        /// Waits for its end.
        ///
        /// @return whether it has ended
        boolean awaitEnd(Duration limit) throws InterruptedException;

        /// Which one it is and how it ended, for messages.
        @Override
        String toString();
    }
}
