// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.function.Function;

/// Who may have to go at a port that is full: only connections of the host that has the most of
/// them, so that no host crowds the others out.
public final class FullPort {
    private FullPort() {}

    /// Those among which one has to go: of the host that has the most, or of several that have as
    /// many. The newcomer counts for its host.
    ///
    /// @param newcomer the host that connects
    /// @param host of a connection
    public static <T> List<T> crowd(Collection<T> open, String newcomer, Function<T, String> host) {
        var counts = new HashMap<String, Integer>();
        counts.put(newcomer, 1);
        open.forEach(connection -> counts.merge(host.apply(connection), 1, Integer::sum));
        int most = counts.values().stream().mapToInt(Integer::intValue).max().orElse(0);
        return open.stream()
                .filter(connection -> counts.getOrDefault(host.apply(connection), most) == most)
                .toList();
    }
}
