/* SPDX-License-Identifier: MIT */
/*
 * Reads configuration files into memory.
 */
#include "target/config_text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *config_text_join(const char *directory, const char *name)
{
	char *ret;

	if (!directory ||
		asprintf(&ret, "%s%s%s", directory, strcmp(directory, "/") ? "/" : "", name) < 0)
		return NULL;
	return ret;
}

/* A disk is known again by its path: "./a" and "a" are one. What a link names may change, so the
 * last part stays as it is; and what does not exist is told as it was written. */
static char *config_text_simplify(char *path)
{
	char *slash = path ? strrchr(path, '/') : NULL;
	char *folder, *ret;

	if (!slash || slash == path)
		return path;
	*slash = '\0';
	folder = realpath(path, NULL);
	*slash = '/';
	if (!folder)
		return path;
	ret = config_text_join(folder, slash + 1);
	free(folder);
	free(path);
	return ret;
}

char *config_text_resolve(const char *directory, const char *path)
{
	char *here = NULL;
	char *ret;

	if (path[0] == '/')
		return config_text_simplify(strdup(path));
	if (!directory)
		directory = here = getcwd(NULL, 0);
	ret = config_text_join(directory, path);
	free(here);
	return config_text_simplify(ret);
}

static char *config_text_directory(const char *file)
{
	const char *slash = strrchr(file, '/');
	char *name, *ret;

	if (!slash)
		return getcwd(NULL, 0);
	name = strndup(file, slash == file ? 1 : (size_t)(slash - file));
	ret = name ? config_text_resolve(NULL, name) : NULL;
	free(name);
	return ret;
}

static int config_text_read_all(FILE *file, struct config_text *text)
{
	text->bytes = malloc(CONFIG_TEXT_MAX + 1);
	if (!text->bytes)
		return -ENOMEM;
	errno = 0;
	text->length = fread(text->bytes, 1, CONFIG_TEXT_MAX, file);
	text->bytes[text->length] = '\0';
	if (ferror(file))
		return errno ? -errno : -EIO;
	return text->length < CONFIG_TEXT_MAX || fgetc(file) == EOF ? 0 : -EFBIG;
}

int config_text_read(const char *name, struct config_text *ret, char *why, size_t why_size)
{
	bool is_input = !strcmp(name, "-");
	struct config_text text = {.name = is_input ? "standard input" : name};
	FILE *file = is_input ? stdin : fopen(name, "re");
	int error = file ? config_text_read_all(file, &text) : -errno;

	if (file && !is_input)
		fclose(file);
	if (!error) {
		text.directory = is_input ? getcwd(NULL, 0) : config_text_directory(name);
		error = text.directory ? 0 : -ENOMEM;
	}
	if (!error) {
		*ret = text;
		return 0;
	}
	snprintf(why, why_size, "%s: cannot be read: %s", text.name,
		error == -EFBIG ? "longer than 2 MiB" : strerror(-error));
	config_text_free(&text);
	return error == -ENOMEM ? error : -EINVAL;
}

void config_text_free(struct config_text *text)
{
	free(text->directory);
	/* There may be secrets in it. */
	if (text->bytes)
		explicit_bzero(text->bytes, text->length);
	free(text->bytes);
	*text = (struct config_text){0};
}
