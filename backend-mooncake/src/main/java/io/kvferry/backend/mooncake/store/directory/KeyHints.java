// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import org.jspecify.annotations.Nullable;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/// At which owner a key was seen last. Bounded in bytes; the keys that were not asked for longest
/// go first. A hint that is wrong costs a question and nothing else.
///
/// Threading: any thread.
final class KeyHints {
    private static final long MOST_BYTES = 64L << 20;
    private static final int PART_OF_HEAP = 32;

    /// Of an entry beside the bytes of its key: the entry, its place in the table, the string.
    private static final int OVERHEAD = 112;

    private static final Map<String, KeyHints> SHARED = new HashMap<>();

    private final long most;
    private final String name;
    private int users = 1;
    private final Map<String, String> segments = new LinkedHashMap<>(16, 0.75f, true);
    private long bytes;

    /// @param most bytes
    KeyHints(String name, long most) {
        this.name = name;
        this.most = most;
    }

    /// Those that all users of a store in this process share: what one half of a connector has
    /// looked up the other one loads.
    ///
    /// @param name of the store
    static KeyHints use(String name) {
        synchronized (SHARED) {
            KeyHints known = SHARED.get(name);
            if (known != null) {
                known.users++;
                return known;
            }
            long most = Math.min(MOST_BYTES, Runtime.getRuntime().maxMemory() / PART_OF_HEAP);
            var made = new KeyHints(name, most);
            SHARED.put(name, made);
            return made;
        }
    }

    /// Ends a [#use].
    void release() {
        synchronized (SHARED) {
            users--;
            if (users == 0) {
                SHARED.remove(name, this);
            }
        }
    }

    /// Two bytes for each character, whatever the virtual machine makes of it.
    private static long cost(String key) {
        return OVERHEAD + 2L * key.length();
    }

    /// The segments at which keys were seen last, null where that is not known.
    synchronized @Nullable String[] find(List<String> keys) {
        var found = new @Nullable String[keys.size()];
        for (int i = 0; i < found.length; i++) {
            found[i] = segments.get(keys.get(i));
        }
        return found;
    }

    /// @param segment shared by all its keys
    synchronized void seen(String key, String segment) {
        if (segments.put(key, segment) == null) {
            bytes += cost(key);
        }
        for (var eldest = segments.keySet().iterator(); bytes > most && eldest.hasNext(); ) {
            bytes -= cost(eldest.next());
            eldest.remove();
        }
    }

    /// The key is not at that segment.
    synchronized void missed(String key, String segment) {
        if (segments.remove(key, segment)) {
            bytes -= cost(key);
        }
    }

    /// The owner of a segment is not there any more.
    synchronized void forget(String segment) {
        segments.entrySet()
                .removeIf(hint -> {
                    boolean gone = hint.getValue().equals(segment);
                    bytes -= gone ? cost(hint.getKey()) : 0;
                    return gone;
                });
    }

    synchronized long bytes() {
        return bytes;
    }
}
