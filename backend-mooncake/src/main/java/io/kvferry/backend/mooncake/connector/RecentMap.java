// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.connector;

import java.util.LinkedHashMap;
import java.util.Map;

/// Keeps the entries used last.
final class RecentMap<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1L;

    private final int capacity;

    RecentMap(int capacity) {
        super(16, 0.75f, true);
        this.capacity = capacity;
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
        return size() > capacity;
    }
}
