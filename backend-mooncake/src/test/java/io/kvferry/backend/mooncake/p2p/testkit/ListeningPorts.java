// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.p2p.testkit;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/// The TCP ports that this process listens on, as the kernel knows them: a test that attacks these
/// cannot forget one.
public final class ListeningPorts {
    private static final String LISTEN = "0A";

    private ListeningPorts() {}

    public static Set<Integer> now() throws IOException {
        var sockets = new HashSet<String>();
        try (var open = Files.newDirectoryStream(Path.of("/proc/self/fd"))) {
            for (var descriptor : open) {
                sockets.add(target(descriptor));
            }
        }
        var ports = new TreeSet<Integer>();
        for (var table : List.of("/proc/self/net/tcp", "/proc/self/net/tcp6")) {
            for (var line : Files.readAllLines(Path.of(table))) {
                var words = line.strip().split(" +");
                if (words[3].equals(LISTEN) && sockets.contains("socket:[" + words[9] + "]")) {
                    var local = words[1];
                    ports.add(Integer.parseInt(local.substring(local.lastIndexOf(':') + 1), 16));
                }
            }
        }
        return ports;
    }

    private static String target(Path descriptor) {
        try {
            return Files.readSymbolicLink(descriptor).toString();
        } catch (IOException e) {
            return ""; // closed meanwhile
        }
    }
}
