// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/// The bundled prompts: what the user says in each turn of each conversation.
final class Conversations {
    private Conversations() {}

    /// Reads the resource; one list of turns per conversation.
    static List<List<String>> bundled() {
        try (var in = Conversations.class.getResourceAsStream("prose.txt")) {
            if (in == null) {
                throw new IllegalStateException("resource prose.txt is missing in the jar");
            }
            return parse(new String(in.readAllBytes(), StandardCharsets.US_ASCII));
        } catch (IOException e) {
            throw new UncheckedIOException("resource prose.txt", e);
        }
    }

    static List<List<String>> parse(String text) {
        var conversations = new ArrayList<List<String>>();
        for (var section : text.split("(?m)^== .*$", -1)) {
            var turns = new ArrayList<String>();
            for (var paragraph : section.split("\\n\\s*\\n", -1)) {
                var line = paragraph.replaceAll("(?m)^#.*$", "").strip().replaceAll("\\s+", " ");
                if (!line.isEmpty()) {
                    turns.add(line);
                }
            }
            if (!turns.isEmpty()) {
                conversations.add(List.copyOf(turns));
            }
        }
        return conversations;
    }
}
