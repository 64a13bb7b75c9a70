// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.disk.store;

/// The parts of one open store that its threads share.
///
/// @param direct what the probe of the folder found
record StoreContext(
        StoreConfig config,
        StoreFolder folder,
        FileCalls calls,
        boolean direct,
        Catalog catalog,
        FreeSpace freeSpace,
        StoreCounters counters,
        StoreListener listener,
        Runnable evictionWanted) {}
