// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.platform.commons.annotation.Testable;
import org.junit.platform.commons.support.AnnotationSupport;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.regex.Pattern;

/// Every case of the TCK, of any family, has a unique number by which reports and issues can name
/// it: a letter for the group, a number, and a lower-case letter where several cases belong to one
/// behaviour.
///
/// | letters | family |
/// |---|---|
/// | A, B, L, D, E29 on, F, G, H | KV connector |
/// | I | composite of KV connectors |
/// | J | composite of encoder-cache connectors |
/// | C | transfer backend |
/// | E1 to E28, E60 on | encoder-cache connector |
/// | K | command |
class CaseNumbersTest {
    private static final Pattern NUMBER = Pattern.compile("([A-L][1-9][0-9]?[a-z]?) .+");

    @Test
    void everyCaseHasANumberOfItsOwn() throws IOException, URISyntaxException {
        var byNumber = new TreeMap<String, String>();
        for (var method : cases()) {
            var name = method.getAnnotation(DisplayName.class);
            assertThat(name).as("display name of %s", method).isNotNull();
            var matcher = NUMBER.matcher(name.value());
            assertThat(matcher.matches())
                    .as("\"%s\" of %s begins with a number", name.value(), method)
                    .isTrue();
            var other = byNumber.put(matcher.group(1), method.toString());
            assertThat(other).as("other case with the number of %s", method).isNull();
        }
        assertThat(byNumber).hasSizeGreaterThan(100);
    }

    private static List<Method> cases() throws IOException, URISyntaxException {
        var classes =
                Path.of(
                        LeakCheck.class
                                .getProtectionDomain()
                                .getCodeSource()
                                .getLocation()
                                .toURI());
        try (var files = Files.walk(classes)) {
            return files.map(file -> classes.relativize(file).toString())
                    .filter(file -> file.endsWith(".class") && !file.endsWith("-info.class"))
                    .map(file -> file.substring(0, file.length() - 6).replace('/', '.'))
                    .sorted()
                    .map(CaseNumbersTest::load)
                    .flatMap(type -> Arrays.stream(type.getDeclaredMethods()))
                    .filter(method -> AnnotationSupport.isAnnotated(method, Testable.class))
                    .toList();
        }
    }

    private static Class<?> load(String name) {
        try {
            return Class.forName(name, false, LeakCheck.class.getClassLoader());
        } catch (ClassNotFoundException e) {
            throw new AssertionError(name, e);
        }
    }
}
