// SPDX-License-Identifier: Apache-2.0
package io.kvferry.toolkit.net;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.function.Function;

/// Chooses which connections to drop when a port is full: only connections of the host with the
/// most, so that one host cannot crowd out the others.
public final class FullPort {
    private FullPort() {}

    /// Those among which one has to go: of the host that has the most, or of several that have as
    /// many. The newcomer counts for its host.
    ///
    /// @param open may lose some meanwhile
    /// @param most connections at which the port is full
    /// @param newcomer the host that connects
    /// @param host of a connection
    /// @return nobody when it is not full any more
    public static <T> List<T> crowd(
            Collection<T> open, int most, String newcomer, Function<T, String> host) {
        var now = List.copyOf(open);
        if (now.size() < most) {
            return List.of();
        }
        var counts = new HashMap<String, Integer>();
        counts.put(newcomer, 1);
        now.forEach(connection -> counts.merge(host.apply(connection), 1, Integer::sum));
        int largest = counts.values().stream().mapToInt(Integer::intValue).max().orElse(0);
        return now.stream()
                .filter(connection -> counts.getOrDefault(host.apply(connection), 0) == largest)
                .toList();
    }
}
