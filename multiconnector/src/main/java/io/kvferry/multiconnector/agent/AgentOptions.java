// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.transfer.PeerId;

import java.time.Duration;

/// Settings of one agent.
///
/// @param self the name that peers know it by, and this life's incarnation
/// @param loops who drives CONFINED backends
/// @param callLimit longest wait for a call on the loop of a CONFINED backend
/// @param drainLimit how long [TransferAgent#close] lets transfers in flight end by themselves
/// @param notifications most notifications that wait for [TransferAgent#drainNotifications]; later
///   ones are dropped and counted
public record AgentOptions(
        PeerId self, Loops loops, Duration callLimit, Duration drainLimit, int notifications) {
    /// Who drives CONFINED backends.
    public enum Loops {
        /// A thread per backend, owned by the agent.
        THREADS,
        /// The thread that opened the agent, by calling [TransferAgent#poll]: for tests, and for
        /// engines with a loop of their own.
        CALLER
    }

    public AgentOptions {
        if (notifications < 1) {
            throw new IllegalArgumentException("notifications: " + notifications + " is no bound");
        }
    }

    /// An agent with its own threads, 30 s for calls, 5 s to drain and 65,536 notifications.
    public static AgentOptions of(PeerId self) {
        return new AgentOptions(
                self, Loops.THREADS, Duration.ofSeconds(30), Duration.ofSeconds(5), 65_536);
    }

    /// The same with other loops.
    public AgentOptions withLoops(Loops other) {
        return new AgentOptions(self, other, callLimit, drainLimit, notifications);
    }

    /// The same with another bound of notifications.
    public AgentOptions withNotifications(int bound) {
        return new AgentOptions(self, loops, callLimit, drainLimit, bound);
    }
}
