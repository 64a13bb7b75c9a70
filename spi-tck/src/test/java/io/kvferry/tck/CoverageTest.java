// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.tck.kv.KvConnectorContract;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/// The 52 behaviours of a connector, each with the test that checks it.
class CoverageTest {
    private static final String COMPOSITE =
            "multiconnector/src/test/java/io/kvferry/multiconnector/composite/";

    /// Numbers up to 52 are the behaviours, from 53 on what kvferry's own contracts add.
    private static final Pattern NUMBER = Pattern.compile("^[A-L](\\d+)[a-z]? .*");

    /// Behaviours of the code round connectors, and the test that checks each: a file of this
    /// repository and a name in it.
    private static final Map<Integer, List<String>> ELSEWHERE =
            Map.of(
                    38,
                            List.of(
                                    "spi-tck/src/test/java/io/kvferry/tck/harness/ReportMergerTest.java",
                                    "F38 "),
                    40,
                            List.of(
                                    COMPOSITE + "HoldTest.java",
                                    "endsAHoldWithItsLastHolderInWhateverOrderTheyEnd"),
                    42,
                            List.of(
                                    COMPOSITE + "IsolationTest.java",
                                    "keepsASchedulerHalfThatThrowsFromTheOthers"),
                    43,
                            List.of(
                                    COMPOSITE + "HoldTest.java",
                                    "keepsBothSidesOfAParamsClashReadableAndEveryChildFinished"));

    static Stream<Integer> numbers() {
        return IntStream.rangeClosed(1, 52).boxed();
    }

    @ParameterizedTest(name = "behaviour {0}")
    @MethodSource("numbers")
    void everyBehaviourHasATest(int number) throws IOException {
        var tests = testsByNumber().getOrDefault(number, List.of());
        var elsewhere = ELSEWHERE.getOrDefault(number, List.of());
        if (!elsewhere.isEmpty()) {
            var source = Files.readString(Path.of("..").resolve(elsewhere.getFirst()));
            assertThat(source).contains(elsewhere.getLast());
        } else {
            assertThat(tests).as("tests of behaviour " + number).isNotEmpty();
        }
    }

    private static Map<Integer, List<String>> testsByNumber() {
        var byNumber = new TreeMap<Integer, List<String>>();
        for (Class<?> type = KvConnectorContract.class;
                type != Object.class;
                type = type.getSuperclass()) {
            for (var name : testNames(type)) {
                var match = NUMBER.matcher(name);
                if (match.matches()) {
                    byNumber.computeIfAbsent(
                                    Integer.valueOf(match.group(1)), _ -> new ArrayList<>())
                            .add(name);
                }
            }
        }
        return byNumber;
    }

    private static List<String> testNames(Class<?> type) {
        return Arrays.stream(type.getDeclaredMethods())
                .filter(method -> method.isAnnotationPresent(DisplayName.class))
                .map((Method method) -> method.getAnnotation(DisplayName.class).value())
                .toList();
    }
}
