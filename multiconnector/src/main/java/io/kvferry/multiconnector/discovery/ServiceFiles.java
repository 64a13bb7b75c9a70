// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import java.io.IOException;
import java.net.JarURLConnection;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;

/// The providers named by the service files of one class loader. If two jars contain the same
/// provider class, [java.util.ServiceLoader] silently uses the first, so a newer release beside the
/// old one would be ignored or mixed with it.
final class ServiceFiles {
    private ServiceFiles() {}

    /// One sentence for every provider of `kind` that lies in two places. What cannot be read is
    /// left to the loading, which tells why.
    static List<String> namedTwice(Class<?> kind, ClassLoader loader) {
        var places = new TreeMap<String, Set<String>>();
        try {
            for (var file :
                    Collections.list(loader.getResources("META-INF/services/" + kind.getName()))) {
                for (var name : names(file)) {
                    places.computeIfAbsent(name, _ -> new LinkedHashSet<>()).add(place(file));
                }
            }
        } catch (IOException _) {
            return List.of();
        }
        var conflicts = new ArrayList<String>();
        places.forEach((name, where) -> {
            if (where.size() > 1) {
                conflicts.add(name + " is in " + String.join(" and in ", where) + ". Keep one");
            }
        });
        return conflicts;
    }

    private static List<String> names(URL file) throws IOException {
        var connection = file.openConnection();
        connection.setUseCaches(false); // a cached jar would stay open when its loader is closed
        try (var in = connection.getInputStream()) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8)
                    .lines()
                    .map(line -> line.replaceFirst("#.*", "").strip())
                    .filter(name -> !name.isEmpty())
                    .toList();
        }
    }

    private static String place(URL file) throws IOException {
        return file.openConnection() instanceof JarURLConnection jar
                ? jar.getJarFileURL().getPath()
                : file.getPath();
    }
}
