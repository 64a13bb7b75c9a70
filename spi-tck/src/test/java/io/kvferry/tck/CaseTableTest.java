// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.tck.ec.EcCompositeContract;
import io.kvferry.tck.ec.EcConnectorContract;
import io.kvferry.tck.kv.KvCompositeContract;
import io.kvferry.tck.transfer.TransferBackendContract;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/// `docs/tck.md` names every case of the transfer, encoder-cache and composite contracts, and no
/// other.
class CaseTableTest {
    private static final Pattern RANGE =
            Pattern.compile("`([CEIJ]\\d+)([a-z]?)` to `([CEIJ]\\d+)([a-z]?)`");

    @ParameterizedTest
    @ValueSource(
            classes = {
                TransferBackendContract.class,
                EcConnectorContract.class,
                KvCompositeContract.class,
                EcCompositeContract.class
            })
    void thePageNamesEveryCase(Class<?> contract) throws IOException {
        var cases = numbers(contract);
        var letter = cases.iterator().next().substring(0, 1);
        var page = Files.readString(Path.of("../docs/tck.md"));
        assertThat(named(page, letter)).containsExactlyInAnyOrderElementsOf(cases);
        for (int number = first(letter); number <= last(letter); number++) {
            assertThat(rows(page, letter)).as("row of " + letter + number).contains(number);
        }
    }

    private static int first(String letter) {
        return letter.equals("I") ? 54 : 1;
    }

    private static int last(String letter) {
        return switch (letter) {
            case "C" -> 50;
            case "E" -> 16;
            case "I" -> 64;
            default -> 10;
        };
    }

    private static Set<String> numbers(Class<?> contract) {
        var numbers = new TreeSet<String>();
        for (Class<?> type = contract; type != Object.class; type = type.getSuperclass()) {
            for (var method : type.getDeclaredMethods()) {
                var name = method.getAnnotation(DisplayName.class);
                if (name != null) {
                    numbers.add(name.value().split(" ", 2)[0]);
                }
            }
        }
        return numbers;
    }

    /// Cases in back quotes, ranges included.
    private static Set<String> named(String page, String letter) {
        var all =
                Pattern.compile("`(" + letter + "\\d+[a-z]?)`")
                        .matcher(page)
                        .results()
                        .map(found -> found.group(1))
                        .collect(Collectors.toCollection(TreeSet::new));
        RANGE.matcher(page).results().forEach(range -> addRange(all, range, letter));
        return all;
    }

    private static void addRange(Set<String> all, MatchResult range, String letter) {
        if (!range.group(1).startsWith(letter)) {
            return;
        }
        if (range.group(2).isEmpty()) {
            int to = Integer.parseInt(range.group(3).substring(1));
            for (int n = Integer.parseInt(range.group(1).substring(1)); n <= to; n++) {
                all.add(letter + n);
            }
            return;
        }
        for (char c = range.group(2).charAt(0); c <= range.group(4).charAt(0); c++) {
            all.add(range.group(1) + c);
        }
    }

    /// Numbers that the first columns of the tables have.
    private static Set<Integer> rows(String page, String letter) {
        var rows = new TreeSet<Integer>();
        for (var line : page.lines().filter(line -> line.startsWith("| " + letter)).toList()) {
            for (var part : line.split("\\|")[1].split(",")) {
                var ends =
                        Arrays.stream(part.split(" to "))
                                .map(end -> Integer.valueOf(end.strip().substring(1)))
                                .toList();
                for (int n = ends.getFirst(); n <= ends.getLast(); n++) {
                    rows.add(n);
                }
            }
        }
        return rows;
    }
}
