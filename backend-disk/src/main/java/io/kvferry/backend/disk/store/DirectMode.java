// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

/// When the files of a store bypass the page cache.
enum DirectMode {
    NEVER,
    /// While no other process has the folder open: what another one wrote just now is read from the
    /// page cache.
    ALONE,
    ALWAYS;

    /// Whether the next file does.
    boolean now(StoreCore core) {
        return switch (this) {
            case NEVER -> false;
            case ALONE -> !core.otherProcesses().present();
            case ALWAYS -> true;
        };
    }
}
