// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import java.util.Objects;

/// A pair of strings that one engine sends another. Mooncake gives them no meaning.
///
/// @param name usually the sender
/// @param message the payload; must not be empty, because an empty one means refusal on Mooncake's
///   wire
public record Notification(String name, String message) {
    public Notification {
        Objects.requireNonNull(name, "name");
        if (message.isEmpty()) {
            throw new IllegalArgumentException(
                    "message is empty; Mooncake peers take that for a refusal");
        }
    }
}
