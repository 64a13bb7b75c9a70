// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import java.io.IOException;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;

import javax.tools.ToolProvider;

/// Builds plugin jars from sources of this repository that serving does not depend on, as a plugin
/// author would: compiled by themselves, dropped into a sub-folder of the plugin folder.
final class PluginSources {
    /// The worked example, `FolderConnector`.
    static final Path EXAMPLE = Path.of("../../examples/plugin-folder/src/main/java");

    /// The worked example of an encoder-cache connector, `ECFolderConnector`.
    static final Path EC_EXAMPLE = Path.of("../../examples/plugin-ec-folder/src/main/java");

    private PluginSources() {}

    /// Makes `pluginFolder/name/name.jar` with one provider.
    static void install(
            Path pluginFolder, String name, Path sources, Class<?> service, String provider)
            throws IOException {
        var classes = Files.createTempDirectory(pluginFolder.toAbsolutePath().getParent(), name);
        compile(sources, classes);
        var folder = Files.createDirectories(pluginFolder.resolve(name));
        try (var jar = new JarOutputStream(Files.newOutputStream(folder.resolve(name + ".jar")));
                var files = Files.walk(classes)) {
            for (var file : files.filter(Files::isRegularFile).toList()) {
                var entry = classes.relativize(file).toString().replace('\\', '/');
                put(jar, entry, Files.readAllBytes(file));
            }
            put(
                    jar,
                    "META-INF/services/" + service.getName(),
                    provider.getBytes(StandardCharsets.UTF_8));
        }
    }

    private static void compile(Path sources, Path to) throws IOException {
        List<Path> files;
        try (var all = Files.walk(sources)) {
            files = all.filter(file -> file.toString().endsWith(".java")).toList();
        }
        var compiler = ToolProvider.getSystemJavaCompiler();
        var messages = new StringWriter();
        try (var manager = compiler.getStandardFileManager(null, null, null)) {
            var options =
                    List.of("-cp", System.getProperty("java.class.path"), "-d", to.toString());
            boolean done =
                    compiler.getTask(
                                    messages,
                                    manager,
                                    null,
                                    options,
                                    null,
                                    manager.getJavaFileObjectsFromPaths(files))
                            .call();
            if (!done) {
                throw new IOException("the plugin does not compile:\n" + messages);
            }
        }
    }

    private static void put(JarOutputStream jar, String name, byte[] content) throws IOException {
        jar.putNextEntry(new JarEntry(name));
        jar.write(content);
        jar.closeEntry();
    }
}
