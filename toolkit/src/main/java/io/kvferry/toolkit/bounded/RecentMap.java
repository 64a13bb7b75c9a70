// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.bounded;

import java.util.LinkedHashMap;
import java.util.Map;

/// Keeps the entries used last.
public final class RecentMap<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1L;

    private final int capacity;

    public RecentMap(int capacity) {
        super(16, 0.75f, true);
        this.capacity = capacity;
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
        return size() > capacity;
    }
}
