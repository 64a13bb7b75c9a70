// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.disk;

/// What a completed save survives. A killed process loses nothing in any mode. With [#NONE], a
/// power failure may leave a file with its name but without its content, so every read is verified.
public enum Durability {
    /// A power cut may lose files saved shortly before.
    NONE,
    /// The bytes are on the medium before the name appears; the name itself may be lost.
    DATA,
    /// Bytes and name are on the medium before the save is reported.
    STRICT
}
