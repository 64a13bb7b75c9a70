// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.discovery;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.assertj.core.api.AbstractThrowableAssert;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;

class PluginCatalogTest {
    @TempDir Path temp;

    private Path plugins;
    private int jars;

    @BeforeEach
    void makePluginFolder() throws Exception {
        plugins = Files.createDirectories(temp.resolve("plugins"));
    }

    @Test
    void findsPluginsInSubFoldersEachWithItsOwnClassLoader() {
        in("a").greeter("One", "one", "").build();
        in("b").greeter(
                        "Two",
                        "two",
                        "public java.util.List<String> aliases() { return java.util.List.of(\"deux\"); }")
                .build();

        try (var catalog = catalog()) {
            var greeters = catalog.of(Greeter.class);

            assertThat(greeters.require("test", "one").greet()).isEqualTo("hello from one");
            assertThat(greeters.require("test", "deux").greet()).isEqualTo("hello from two");
            assertThat(greeters.find("one").orElseThrow().folder()).isEqualTo("a");
            assertThat(greeters.find("one").orElseThrow().where()).endsWith("plugins/a/p.jar");
            assertThat(greeters.require("test", "one").getClass().getClassLoader())
                    .isNotSameAs(greeters.require("test", "two").getClass().getClassLoader());
        }
    }

    @Test
    void letsTwoFoldersBringDifferentVersionsOfOneClass() {
        var greet =
                "public String library() { return Lib.version(); } public String toString() { return Lib.version(); }";
        in("a").source(
                        "Lib",
                        "public class Lib { public static String version() { return \"1\"; } }")
                .greeter("One", "one", greet)
                .build();
        in("b").source(
                        "Lib",
                        "public class Lib { public static String version() { return \"2\"; } }")
                .greeter("Two", "two", greet)
                .build();

        try (var catalog = catalog()) {
            var greeters = catalog.of(Greeter.class);

            assertThat(greeters.require("test", "one")).hasToString("1");
            assertThat(greeters.require("test", "two")).hasToString("2");
        }
    }

    @Test
    void refusesTwoProvidersOfOneNameAndNamesBothJars() {
        in("a").greeter("One", "same", "").build();
        in("b").greeter("Two", "same", "").build();

        try (var catalog = catalog()) {
            var greeters = catalog.of(Greeter.class);

            assertThat(greeters.conflicts()).hasSize(1);
            refused(ErrorCode.PLUGIN_CONFLICT, () -> greeters.require("kv_connector", "same"))
                    .hasMessageContaining("plugins/a/p.jar")
                    .hasMessageContaining("plugins/b/p.jar")
                    .hasMessageContaining("\"same\"");
        }
    }

    @Test
    void refusesTwoReleasesOfOneJarInASubFolder() throws Exception {
        var jar = in("a").greeter("One", "one", "").build();
        Files.copy(jar, jar.resolveSibling("p-2.jar"));

        try (var catalog = catalog()) {
            refused(
                            ErrorCode.PLUGIN_CONFLICT,
                            () -> catalog.of(Greeter.class).require("kv_connector", "one"))
                    .hasMessageContaining("kv_connector: One is in ")
                    .hasMessageContaining("plugins/a/p.jar")
                    .hasMessageContaining("plugins/a/p-2.jar");
        }
    }

    @Test
    void tellsOfAJarThatCannotBeOpened() throws Exception {
        var jar = in("a").greeter("One", "one", "").build();
        Files.write(jar, Arrays.copyOf(Files.readAllBytes(jar), 300));
        in("b").greeter("Two", "two", "").build();

        try (var catalog = catalog()) {
            var greeters = catalog.of(Greeter.class);

            assertThat(greeters.require("kv_connector", "two")).isNotNull();
            refused(ErrorCode.NOT_FOUND, () -> greeters.require("kv_connector", "one"))
                    .hasMessageContaining("Skipped: everything in " + jar)
                    .hasMessageContaining("cannot be opened");
        }
    }

    @ParameterizedTest
    @CsvSource({"DiskConnectr, true", "Disk, true", "diskconnector, true", "NixlConnector, false"})
    void suggestsANameByWhatTellsItFromOthers(String asked, boolean meant) {
        in("a").greeter("One", "DiskConnector", "").build();

        try (var catalog = catalog()) {
            var refusal =
                    refused(
                            ErrorCode.NOT_FOUND,
                            () -> catalog.of(Greeter.class).require("kv_connector", asked));
            if (meant) {
                refusal.hasMessageContaining("did you mean \"DiskConnector\"? Found:");
            } else {
                refusal.hasMessageContaining("is called \"NixlConnector\". Found:");
            }
        }
    }

    @Test
    void refusesAnAliasThatIsAnothersName() {
        in("a").greeter("One", "one", "").build();
        in("b").greeter(
                        "Two",
                        "two",
                        "public java.util.List<String> aliases() { return java.util.List.of(\"one\"); }")
                .build();

        try (var catalog = catalog()) {
            refused(ErrorCode.PLUGIN_CONFLICT, () -> catalog.of(Greeter.class).require("x", "two"));
        }
    }

    @Test
    void refusesTheSameJarOnTheClassPathAndInAFolder() throws Exception {
        var jar = in("a").greeter("One", "one", "").build();
        var onClassPath = Files.copy(jar, temp.resolve("cp.jar"));

        try (var host =
                        new URLClassLoader(
                                new URL[] {onClassPath.toUri().toURL()},
                                Greeter.class.getClassLoader());
                var catalog = PluginCatalog.of(host, plugins)) {
            refused(ErrorCode.PLUGIN_CONFLICT, () -> catalog.of(Greeter.class).require("x", "one"))
                    .hasMessageContaining("cp.jar")
                    .hasMessageContaining("plugins/a/p.jar");
        }
    }

    @Test
    void findsAHostPluginOnceHoweverManyFoldersThereAre() throws Exception {
        var onClassPath =
                new PluginJar(temp.resolve("w"), temp.resolve("cp.jar"))
                        .greeter("Host", "host", "")
                        .build();
        in("a").greeter("One", "one", "").build();
        in("b").greeter("Two", "two", "").build();

        try (var host =
                        new URLClassLoader(
                                new URL[] {onClassPath.toUri().toURL()},
                                Greeter.class.getClassLoader());
                var catalog = PluginCatalog.of(host, plugins)) {
            assertThat(catalog.of(Greeter.class).all())
                    .extracting(FoundPlugin::name)
                    .containsExactly("host", "one", "two");
            assertThat(catalog.of(Greeter.class).conflicts()).isEmpty();
        }
    }

    @Test
    void searchesSeveralFoldersAlsoWithSubFoldersOfOneName() {
        in("a").greeter("One", "one", "").build();
        var more = temp.resolve("more");
        new PluginJar(temp.resolve("work-more"), more.resolve("a").resolve("p.jar"))
                .greeter("Two", "two", "")
                .build();

        try (var catalog =
                PluginCatalog.of(Greeter.class.getClassLoader(), List.of(plugins, more))) {
            assertThat(catalog.of(Greeter.class).all())
                    .extracting(FoundPlugin::name)
                    .containsExactly("one", "two");
            refused(ErrorCode.NOT_FOUND, () -> catalog.of(Greeter.class).require("x", "none"))
                    .hasMessageContaining(plugins.toString())
                    .hasMessageContaining(more.toString());
        }
    }

    @Test
    void skipsAPluginBuiltForAnotherSpiWithoutAskingItAnythingElse() {
        in("a").greeter(
                        "Future",
                        "future",
                        """
                        public io.kvferry.spi.SpiVersion.Range spiVersions() { return io.kvferry.spi.SpiVersion.Range.from(2, 0); }
                        public java.util.List<String> aliases() { throw new IllegalStateException("asked too early"); }
                        """)
                .build();
        in("b").greeter("One", "one", "").build();

        try (var catalog = catalog()) {
            var greeters = catalog.of(Greeter.class);

            assertThat(greeters.all()).extracting(FoundPlugin::name).containsExactly("one");
            assertThat(greeters.skipped())
                    .singleElement()
                    .satisfies(skipped -> {
                        assertThat(skipped.failure().code()).isEqualTo(ErrorCode.INCOMPATIBLE);
                        assertThat(skipped.toString())
                                .contains("Future", "plugins/a/p.jar", ">=2.0 <3.0", "1.0");
                    });
            refused(ErrorCode.NOT_FOUND, () -> greeters.require("kv_connector", "future"))
                    .hasMessageContaining(">=2.0 <3.0");
        }
    }

    @Test
    void skipsOnlyThePluginWhoseServiceFileIsBroken() {
        in("a").service("No Such Class!").build();
        in("b").service("missing.Provider").build();
        in("c").greeter("Bad", "bad", "{ if (true) throw new IllegalStateException(\"boom\"); }")
                .build();
        in("d").source("NoGreeter", "public class NoGreeter {}").service("NoGreeter").build();
        in("e").greeter("One", "one", "").build();

        try (var catalog = catalog()) {
            var greeters = catalog.of(Greeter.class);

            assertThat(greeters.require("test", "one").greet()).isEqualTo("hello from one");
            assertThat(greeters.skipped()).hasSize(4);
            assertThat(greeters.skipped().toString())
                    .contains("missing.Provider", "boom", "NoGreeter", "folder a");
        }
    }

    @Test
    void namesWhatItFoundAndWhereForAnUnknownName() {
        in("a").greeter("One", "DiskConnector", "").build();

        try (var catalog = catalog()) {
            refused(
                            ErrorCode.NOT_FOUND,
                            () ->
                                    catalog.of(Greeter.class)
                                            .require("kv_connector", "DiscConnector"))
                    .hasMessageContaining("kv_connector: no greeter is called \"DiscConnector\"")
                    .hasMessageContaining("did you mean \"DiskConnector\"?")
                    .hasMessageContaining("plugins/a/p.jar")
                    .hasMessageContaining("Searched: the class path and " + plugins);
        }
    }

    @Test
    void saysWhenAJarLiesWhereNoneIsLookedFor() throws Exception {
        var jar = in("a").greeter("One", "one", "").build();
        Files.move(jar, plugins.resolve("one.jar"));

        try (var catalog = catalog()) {
            refused(
                            ErrorCode.NOT_FOUND,
                            () -> catalog.of(Greeter.class).require("kv_connector", "one"))
                    .hasMessageContaining("one.jar directly in it")
                    .hasMessageContaining("a sub-folder of its own");
        }
    }

    @Test
    void loadsNothingOfAKindThatNobodyAskedFor() {
        System.clearProperty("kvferry.test.loaded");
        in("a").greeter(
                        "One",
                        "one",
                        "static { System.setProperty(\"kvferry.test.loaded\", \"yes\"); }")
                .build();

        try (var catalog = catalog()) {
            assertThat(catalog.of(io.kvferry.spi.kv.KvConnectorProvider.class).find("one"))
                    .isEmpty();
            assertThat(System.getProperty("kvferry.test.loaded")).isNull();

            assertThat(catalog.of(Greeter.class).find("one")).isPresent();
            assertThat(System.getProperty("kvferry.test.loaded")).isEqualTo("yes");
        } finally {
            System.clearProperty("kvferry.test.loaded");
        }
    }

    @Test
    void closesTheClassLoadersAndThenRefuses() {
        in("a").greeter("One", "one", "").source("Late", "public class Late {}").build();
        var catalog = catalog();
        var loader = catalog.of(Greeter.class).require("x", "one").getClass().getClassLoader();

        catalog.close();
        catalog.close();

        assertThatThrownBy(() -> loader.loadClass("Late"))
                .isInstanceOf(ClassNotFoundException.class);
        refused(ErrorCode.CLOSED, () -> catalog.of(Greeter.class));
    }

    @Test
    void refusesAPluginFolderThatIsNone() {
        refused(
                        ErrorCode.BAD_CONFIG,
                        () ->
                                PluginCatalog.of(
                                        Greeter.class.getClassLoader(), temp.resolve("absent")))
                .hasMessageContaining("absent")
                .hasMessageContaining("sub-folder");
    }

    private PluginJar in(String folder) {
        return new PluginJar(
                temp.resolve("work" + jars++), plugins.resolve(folder).resolve("p.jar"));
    }

    private PluginCatalog catalog() {
        return PluginCatalog.of(Greeter.class.getClassLoader(), plugins);
    }

    private static AbstractThrowableAssert<?, ? extends Throwable> refused(
            ErrorCode code, org.assertj.core.api.ThrowableAssert.ThrowingCallable call) {
        return assertThatThrownBy(call)
                .isInstanceOfSatisfying(
                        KvFerryException.class, e -> assertThat(e.code()).isEqualTo(code));
    }
}
