// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.demo;

/// Hears how far the demo is. Called from any thread.
public interface Progress {
    /// What begins now.
    void phase(String what);

    /// How much of the current phase is done.
    void advance(int done, int total);
}
