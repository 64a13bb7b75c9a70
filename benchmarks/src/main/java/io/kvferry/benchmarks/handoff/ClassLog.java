// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks.handoff;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/// What a JVM says about the classes that it loads, in their order.
///
/// @param file that the JVM writes
record ClassLog(Path file) {
    private static final int MOST = 12;

    /// The option by which a JVM writes the file.
    List<String> option() {
        return List.of("-Xlog:class+load=info:file=" + file + "::filecount=0");
    }

    /// Where the classes are from that P loads from the end of its prefill until its blocks are
    /// free.
    String atPrefill(Route.Pair pair) throws IOException {
        var p = pair.prefill();
        return origins(p.token().cost().classes(), p.idle().cost().classes());
    }

    /// Where the classes are from that D loads from the request to its token.
    String atDecode(Route.Pair pair) throws IOException {
        var d = pair.decode();
        return origins(d.begun().cost().classes(), d.token().cost().classes());
    }

    /// The packages that most of the classes from one number to another are of, with how many.
    private String origins(long from, long to) throws IOException {
        Map<String, Integer> counts = new TreeMap<>();
        try (var lines = Files.lines(file, StandardCharsets.UTF_8)) {
            for (var line :
                    lines.filter(ClassLog::isLoading).skip(from).limit(to - from).toList()) {
                counts.merge(origin(line), 1, Integer::sum);
            }
        }
        return counts.entrySet().stream()
                .sorted(Map.Entry.<String, Integer>comparingByValue(Comparator.reverseOrder()))
                .limit(MOST)
                .map(entry -> entry.getKey() + " " + entry.getValue())
                .collect(Collectors.joining(", "));
    }

    private static boolean isLoading(String line) {
        return line.contains(" source: ");
    }

    /// Package of the class, and whether the JVM had it in its archive, which makes loading cheap.
    private static String origin(String line) {
        var text = line.substring(line.lastIndexOf("] ") + 2);
        var name = text.substring(0, text.indexOf(' '));
        int end = name.lastIndexOf('.');
        var archived = text.contains("shared objects file") ? " (archived)" : "";
        return (end < 0 ? name : name.substring(0, end)) + archived;
    }
}
