// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import static org.assertj.core.api.Assertions.assertThat;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.command.CommandProvider;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarOutputStream;
import java.util.jar.Manifest;
import java.util.stream.Stream;

/// Commands of plugins on the command line, run as a user does: in a process of their own.
class ContributedCommandTest {
    private static final Manifest EMPTY = new Manifest();

    @TempDir Path folder;

    record Result(int code, String out, String err) {}

    private ProcessBuilder process(List<Class<?>> providers, String... arguments)
            throws IOException {
        var services = folder.resolve("services/META-INF/services");
        Files.createDirectories(services);
        Files.write(
                services.resolve(CommandProvider.class.getName()),
                providers.stream().map(Class::getName).toList());
        return new ProcessBuilder(KvferryCommand.of(List.of(folder.resolve("services")), arguments))
                .redirectError(folder.resolve("stderr").toFile());
    }

    private Result kvferry(List<Class<?>> providers, String... arguments)
            throws IOException, InterruptedException {
        var process = process(providers, arguments).start();
        process.getOutputStream().close();
        var out = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor(60, TimeUnit.SECONDS)).isTrue();
        return new Result(process.exitValue(), out, Files.readString(folder.resolve("stderr")));
    }

    private Result list(String... arguments) throws IOException, InterruptedException {
        var all = Stream.concat(Stream.of("shelf", "list"), Stream.of(arguments));
        return kvferry(List.of(ShelfList.class), all.toArray(String[]::new));
    }

    @Test
    void runsWithValidatedOptionsAndArguments() throws Exception {
        assertThat(list("a", "b", "--most-bytes", "2KiB", "--deep").out())
                .isEqualTo("[a, b] 2048 true false\n");
        assertThat(list("--most_bytes=7", "--deep=false", "--json", "x").out())
                .isEqualTo("[x] 7 false true\n");
        assertThat(list("--", "--deep").out()).isEqualTo("[--deep] 1048576 false false\n");
        assertThat(list("--plugin-folder", folder.toString(), "x").out())
                .isEqualTo("[x] 1048576 false false " + folder + "\n");
    }

    @Test
    void itsExitCodeIsThatOfTheProcess() throws Exception {
        assertThat(list("fail").code()).isEqualTo(7);
        var refused = list("refuse");
        assertThat(refused.code()).isEqualTo(ExitCode.FAILED);
        assertThat(refused.err().strip().lines()).hasSize(1);
        assertThat(refused.err()).contains("no such shelf");
    }

    @Test
    void badOptionsAreRefusedBeforeItRuns() throws Exception {
        var range = list("--most-bytes", "0", "x");
        assertThat(range.code()).isEqualTo(ExitCode.USAGE);
        assertThat(range.out()).isEmpty();
        assertThat(range.err()).contains("most_bytes", "outside 1");
        assertThat(list("--most-bytes", "many", "x").err()).contains("expected bytes");
        assertThat(list("--deep=maybe", "x").err()).contains("expected true or false");
        assertThat(list("--mostbytes", "1", "x").code()).isEqualTo(ExitCode.USAGE);
        var missing = list();
        assertThat(missing.code()).as(missing.err()).isEqualTo(ExitCode.USAGE);
    }

    @Test
    void helpNamesItsOptionsWithTheirDefaults() throws Exception {
        assertThat(list("--help").out())
                .contains("--most-bytes", "default: 1MiB", "SHELF", "100% of a shelf");
        assertThat(kvferry(List.of(ShelfList.class), "--help").out()).contains("shelf");
        assertThat(kvferry(List.of(ShelfList.class), "shelf").err()).contains("list");
        assertThat(kvferry(List.of(ShelfList.class), "plugins").out()).contains("shelf list");
    }

    @Test
    void nameClashesAreReportedAndTheOtherCommandsWork() throws Exception {
        var providers = new ArrayList<Class<?>>(List.of(ShelfList.class, SecondList.class));
        providers.add(Serve.class);
        var result = kvferry(providers, "shelf", "list", "a");
        assertThat(result.out()).startsWith("[a]");
        assertThat(result.err().strip().lines()).hasSize(2);
        assertThat(result.err()).contains("\"serve\"", "kvferry has a command of that name");
        assertThat(result.err()).contains("\"shelf list\"", "taken");
    }

    @Test
    void doctorPrintsWhatPluginsFoundAndSurvivesOneThatFails() throws Exception {
        var result = kvferry(List.of(ShelfList.class, SecondList.class), "doctor");
        assertThat(result.out()).contains("shelf wood", "apt install shelf");
        assertThat(result.out()).contains("cross memory attach");
        assertThat(result.out()).contains("diagnose() failed");
        assertThat(result.code()).isEqualTo(ExitCode.OK);
    }

    /// A command of the host searches the folder once more than one of a plugin.
    @Test
    void aWarningAboutThePluginFolderIsPrintedOnce() throws Exception {
        var plugins = folder.resolve("plugins");
        for (var copy : List.of("first", "second")) {
            Files.createDirectories(plugins.resolve(copy));
            new JarOutputStream(Files.newOutputStream(plugins.resolve(copy + "/twice.jar")), EMPTY)
                    .close();
        }
        Files.createFile(plugins.resolve("loose.jar"));
        for (var command : List.of("plugins", "shelf list a")) {
            var typed = new ArrayList<>(List.of(command.split(" ")));
            typed.add("--plugin-folder=" + plugins);
            var result = kvferry(List.of(ShelfList.class), typed.toArray(String[]::new));
            assertThat(result.code()).as(result.err()).isEqualTo(ExitCode.OK);
            assertThat(result.err())
                    .containsOnlyOnce("loose.jar directly in it: not searched")
                    .containsOnlyOnce("two plugin jars of one name");
        }
    }

    @Test
    void aServerReportsThatItIsReadyAndStopsWithItsParent() throws Exception {
        var process =
                process(List.of(Warehouse.class), "warehouse", "--json", "--stop-with-stdin")
                        .start();
        try (var out = process.inputReader()) {
            assertThat(out.readLine()).isEqualTo("{\"port\":17}");
            process.getOutputStream().close();
            assertThat(out.readLine()).isEqualTo("closed");
            assertThat(process.waitFor(60, TimeUnit.SECONDS)).isTrue();
            assertThat(process.exitValue()).isZero();
        } finally {
            process.destroyForcibly();
        }
    }

    @Test
    void aServerThatIsTerminatedClosesFirst() throws Exception {
        var process = process(List.of(Warehouse.class), "warehouse").start();
        try (var out = process.inputReader()) {
            assertThat(out.readLine()).isEqualTo("open");
            process.toHandle().destroy(); // Process.destroy also closes its streams
            assertThat(out.readLine()).isEqualTo("closed");
            assertThat(process.waitFor(60, TimeUnit.SECONDS)).isTrue();
        } finally {
            process.destroyForcibly();
        }
    }

    /// Has options, arguments and results of every sort.
    public static class ShelfList implements CommandProvider {
        @Override
        public String name() {
            return "shelf list";
        }

        @Override
        public String description() {
            return "Lists 100% of a shelf.";
        }

        @Override
        public SpiVersion.Range spiVersions() {
            return SpiVersion.Range.from(1, 0);
        }

        @Override
        public OptionSchema options() {
            return OptionSchema.of(
                    Option.of("most_bytes", Option.Type.BYTES, "longest line")
                            .withDefault("1MiB")
                            .inRange(1, 1e12),
                    Option.of("deep", Option.Type.BOOLEAN, "open boxes").withDefault("false"));
        }

        @Override
        public Arguments arguments() {
            return new Arguments("SHELF", 1, 3, "which shelves");
        }

        @Override
        public List<Finding> diagnose() {
            return List.of(Finding.optional("shelf wood", "none", "apt install shelf"));
        }

        @Override
        public int run(CommandProvider.Context context) {
            switch (context.arguments().getFirst()) {
                case "fail" -> {
                    return 7;
                }
                case "refuse" -> throw new KvFerryException(ErrorCode.STORAGE_IO, "no such shelf");
                default ->
                        context.out()
                                .println(
                                        context.arguments()
                                                + " "
                                                + context.options().bytes("most_bytes")
                                                + " "
                                                + context.options().bool("deep")
                                                + " "
                                                + context.json()
                                                + context.pluginFolder()
                                                        .map(folder -> " " + folder)
                                                        .orElse(""));
            }
            return 0;
        }
    }

    /// Has the name of another plugin's command, and fails to look at the machine.
    public static final class SecondList extends ShelfList {
        @Override
        public List<Finding> diagnose() {
            throw new IllegalStateException("cannot look");
        }
    }

    /// Has the name of a command of the host.
    public static final class Serve extends ShelfList {
        @Override
        public String name() {
            return "serve";
        }
    }

    /// A server.
    public static final class Warehouse extends ShelfList {
        @Override
        public String name() {
            return "warehouse";
        }

        @Override
        public Arguments arguments() {
            return Arguments.NONE;
        }

        @Override
        public int run(CommandProvider.Context context) {
            context.serveUntilStopped("open", Map.of("port", 17));
            context.out().println("closed");
            return 0;
        }
    }
}
