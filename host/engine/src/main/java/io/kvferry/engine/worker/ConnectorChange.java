// SPDX-License-Identifier: Apache-2.0
package io.kvferry.engine.worker;

/// What a step changes about a connector's worker halves, on every rank and before anything else.
///
/// @param incarnation of the engine, for the halves that are opened
public record ConnectorChange(Kind kind, long incarnation) {
    /// As it was.
    public static final ConnectorChange NONE = new ConnectorChange(Kind.NONE, 0);

    /// The half is closed, also one that was opened and is not in use yet.
    public static final ConnectorChange CLOSE = new ConnectorChange(Kind.CLOSE, 0);

    /// What was opened is in use from this step on.
    public static final ConnectorChange USE = new ConnectorChange(Kind.USE, 0);

    /// The kinds; their order is part of the byte form.
    public enum Kind {
        NONE,
        CLOSE,
        /// A new half is opened in a thread of its own, while steps go on without it. The result of
        /// one of the next steps says how that went.
        OPEN,
        USE
    }

    public static ConnectorChange open(long incarnation) {
        return new ConnectorChange(Kind.OPEN, incarnation);
    }
}
