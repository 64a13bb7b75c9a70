// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import java.util.Objects;

/// One thing that `kvferry doctor` looked for on this machine ([Plugin#diagnose]).
///
/// @param what was looked for, a few words; two findings of one name are printed once
/// @param found what is there, or why it counts as absent
/// @param remedy how to get it (a package, a flag, an option); empty when it is there
public record Finding(String what, State state, String found, String remedy) {
    /// How much the absence matters.
    public enum State {
        /// It is there.
        OK,
        /// Not there; something optional does not work, or works more slowly.
        OPTIONAL,
        /// Not there, and the plugin cannot work without it.
        MISSING
    }

    public Finding {
        Objects.requireNonNull(what, "what");
        Objects.requireNonNull(state, "state");
        Objects.requireNonNull(found, "found");
        Objects.requireNonNull(remedy, "remedy");
    }

    /// The thing looked for is present.
    public static Finding ok(String what, String found) {
        return new Finding(what, State.OK, found, "");
    }

    /// The thing looked for is absent, and only something optional needs it.
    public static Finding optional(String what, String found, String remedy) {
        return new Finding(what, State.OPTIONAL, found, remedy);
    }

    /// The thing looked for is absent, and the plugin needs it.
    public static Finding missing(String what, String found, String remedy) {
        return new Finding(what, State.MISSING, found, remedy);
    }
}
