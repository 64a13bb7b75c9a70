// SPDX-License-Identifier: Apache-2.0
package io.kvferry.demo;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.util.List;

class ConversationsTest {
    @Test
    void readsSectionsAndParagraphs() {
        var text = "# comment\n#\n== one\na\nb\n\nc\n\n== two\nd\n";
        assertThat(Conversations.parse(text)).containsExactly(List.of("a b", "c"), List.of("d"));
    }

    @Test
    void bundledTextHasSeveralTurnsOfPrintableAsciiEach() {
        var conversations = Conversations.bundled();
        assertThat(conversations)
                .hasSize(6)
                .allSatisfy(turns -> {
                    assertThat(turns).hasSizeGreaterThanOrEqualTo(3);
                    assertThat(turns).allMatch(turn -> turn.matches("[\\x20-\\x7e]{20,400}"));
                });
    }

    @Test
    void ranksLatenciesByNearestRank() {
        var l = Latencies.ofNanos(List.of(4_000_000L, 1_000_000L, 3_000_000L, 2_000_000L));
        assertThat(l.meanMs()).isEqualTo(2.5);
        assertThat(l.medianMs()).isEqualTo(2);
        assertThat(l.p99Ms()).isEqualTo(4);
    }
}
