// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

/// Receives the progress of a long command. Called from any thread.
public interface Progress {
    /// A phase begins.
    void phase(String what);

    /// How much of the current phase is done.
    void advance(int done, int total);
}
