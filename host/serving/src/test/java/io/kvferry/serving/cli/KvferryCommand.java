// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import java.io.File;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/// The command line that starts `kvferry` on the class path of the test.
public final class KvferryCommand {
    private KvferryCommand() {}

    public static List<String> of(List<Path> moreClassPath, String... arguments) {
        return of(moreClassPath, List.of(), arguments);
    }

    public static List<String> of(
            List<Path> moreClassPath, List<String> jvmOptions, String... arguments) {
        var classPath = new StringBuilder(System.getProperty("java.class.path"));
        moreClassPath.forEach(path -> classPath.append(File.pathSeparatorChar).append(path));
        var command =
                new ArrayList<>(
                        List.of(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "--sun-misc-unsafe-memory-access=allow",
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1"));
        command.addAll(jvmOptions);
        command.addAll(List.of("-cp", classPath.toString(), "io.kvferry.serving.cli.Main"));
        command.addAll(List.of(arguments));
        return command;
    }
}
