// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.faults;

/// Faults of a fleet of a prefill instance, a decode instance and a router.
enum Fault {
    KILL_PREFILL,
    KILL_DECODE,
    KILL_ROUTER,
    /// SIGSTOP, and SIGCONT some time later.
    PAUSE_PREFILL,
    PAUSE_DECODE,
    PAUSE_ROUTER,
    /// SIGTERM, and a new process when the old one has ended.
    RESTART_PREFILL,
    RESTART_DECODE,
    RESTART_ROUTER,
    /// The file system of the block store is full.
    DISK_FULL,
    /// Bytes of stored blocks change.
    CORRUPT_FILES,
    /// Files of stored blocks are cut short.
    TORN_FILES,
    /// Files of stored blocks cannot be opened.
    UNREADABLE_FILES,
    /// Stored blocks are deleted, sometimes with their folders.
    DELETED_FILES,
    /// No byte passes between the router and an instance.
    STALLED_LINK,
    /// All connections between the router and its instances are reset.
    RESET_CONNECTIONS,
    /// Connections to every port of every process that send nothing.
    SILENT_CONNECTIONS,
    /// Connections to every port of every process that send random bytes.
    GARBAGE_CONNECTIONS
}
