// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.spi.Failure;
import io.kvferry.spi.kv.TransferId;

import org.jspecify.annotations.Nullable;

import java.util.LinkedHashMap;
import java.util.function.ToLongBiFunction;

/// What a service remembers of things that are over, bounded in number and in bytes: peers and
/// clients choose ids, and how long these are. The entries used last are kept.
///
/// Threading: one thread at a time.
final class Remembered<K, V> {
    private static final int MOST = 1 << 14;

    /// More than that many ids of the usual length take.
    static final long MOST_BYTES = 8 << 20;

    /// Of an entry without its texts, about.
    private static final long ENTRY_BYTES = 64;

    private final LinkedHashMap<K, V> entries = new LinkedHashMap<>(16, 0.75f, true);
    private final ToLongBiFunction<K, V> characters;
    private long bytes;

    private Remembered(ToLongBiFunction<K, V> characters) {
        this.characters = characters;
    }

    /// By a text.
    static <V> Remembered<String, V> byText() {
        return new Remembered<>((text, _) -> text.length());
    }

    /// By a text, why it is over.
    static Remembered<String, Failure> failures() {
        return new Remembered<>((text, why) -> (long) text.length() + why.message().length());
    }

    static Remembered<TransferId, Boolean> transfers() {
        return new Remembered<>((id, _) -> id.subject().length());
    }

    private long bytesOf(K key, V value) {
        return ENTRY_BYTES + Character.BYTES * characters.applyAsLong(key, value);
    }

    boolean contains(K key) {
        return get(key) != null;
    }

    @Nullable V get(K key) {
        return entries.get(key);
    }

    void put(K key, V value) {
        remove(key);
        try {
            entries.put(key, value);
        } finally {
            if (entries.containsKey(key)) { // also where there was no memory for a larger table
                bytes += bytesOf(key, value);
            }
        }
        while (entries.size() > MOST || bytes > MOST_BYTES) {
            var eldest = entries.firstEntry();
            remove(eldest.getKey());
        }
    }

    void remove(K key) {
        var before = entries.remove(key);
        if (before != null) {
            bytes -= bytesOf(key, before);
        }
    }

    int size() {
        return entries.size();
    }
}
