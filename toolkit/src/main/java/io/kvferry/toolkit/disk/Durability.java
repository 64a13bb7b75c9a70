// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

/// What a completed save survives. A killed process loses nothing under any of them. A power cut
/// may leave a file with its name and without its bytes under [#NONE], so every read is checked.
public enum Durability {
    /// A power cut may lose files saved shortly before.
    NONE,
    /// The bytes are on the medium before the name appears; the name itself may be lost.
    DATA,
    /// Bytes and name are on the medium before the save is reported.
    STRICT
}
