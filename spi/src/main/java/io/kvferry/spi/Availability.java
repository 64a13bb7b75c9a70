// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

/// Whether a plugin can work on this machine.
public sealed interface Availability {
    /// Ready; `detail` names what was found (a library version, a device), or is empty.
    record Available(String detail) implements Availability {}

    /// Not ready: `reason` says what is missing, `remedy` how to get it (a package, a flag, an
    /// option).
    record Unavailable(String reason, String remedy) implements Availability {}
}
