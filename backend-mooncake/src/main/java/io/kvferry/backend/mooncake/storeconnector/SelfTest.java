// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.storeconnector;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.Optional;
import java.util.UUID;

/// Stores a small object, looks for it, reads it and removes it: a store that takes nothing, or
/// gives other bytes back, is noticed when an engine starts and not by hits that never come.
final class SelfTest {
    private static final long BYTES = 4096;

    private SelfTest() {}

    /// What is wrong with the store; empty when it works, or is only full.
    static Optional<String> run(Store store, int rank) {
        String key = "kvferry-self-test@rank:" + rank + "@" + UUID.randomUUID();
        try (var arena = Arena.ofShared()) {
            MemorySegment out = arena.allocate(BYTES, 64);
            MemorySegment back = arena.allocate(BYTES, 64);
            for (long i = 0; i < BYTES; i++) {
                out.set(ValueLayout.JAVA_BYTE, i, (byte) (i * 31 + key.hashCode()));
            }
            store.register(out);
            store.register(back);
            try {
                return trouble(store, key, out, back)
                        .map(what -> "self-test of the store failed: " + what);
            } finally {
                store.remove(key, true);
                store.unregister(out);
                store.unregister(back);
            }
        }
    }

    private static Optional<String> trouble(
            Store store, String key, MemorySegment out, MemorySegment back) {
        var batch = new StoreBatch();
        var codes = new int[1];
        store.put(batch.add(key).buffer(out), PutOptions.DEFAULT, codes);
        if (codes[0] == StoreCode.NO_AVAILABLE_HANDLE.number()) {
            return Optional.empty();
        }
        if (codes[0] != 0) {
            return Optional.of("put answered " + StoreCode.text(codes[0]));
        }
        store.exists(List.of(key), true, codes);
        if (codes[0] != 1) {
            return Optional.of("what was put is not there, exists answered " + codes[0]);
        }
        var bytes = new long[1];
        store.get(batch.clear().add(key).buffer(back), bytes);
        if (bytes[0] != BYTES) {
            return Optional.of("get answered " + StoreCode.text(bytes[0]));
        }
        return out.mismatch(back) >= 0
                ? Optional.of("other bytes came back than were put")
                : Optional.empty();
    }
}
