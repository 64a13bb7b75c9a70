// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import io.kvferry.spi.Failure;

/// A provider that was found but cannot be used; the others are not affected.
///
/// @param what the provider's class name where it is known, else its kind
/// @param where the jar or folder
/// @param failure why, and how to mend it
public record SkippedPlugin(String what, String where, Failure failure) {
    @Override
    public String toString() {
        return what + " in " + where + " (" + failure.message() + ")";
    }
}
