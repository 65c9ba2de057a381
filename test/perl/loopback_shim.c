/*
 * Preloaded into a program that can only listen on all addresses, it has it
 * listen on the loopback's.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

int
bind(int socket, const struct sockaddr *address, socklen_t length)
{
	int			(*real) (int, const struct sockaddr *, socklen_t) =
	(int (*) (int, const struct sockaddr *, socklen_t)) dlsym(RTLD_NEXT, "bind");
	struct sockaddr_in loopback;

	if (address->sa_family != AF_INET)
		return real(socket, address, length);
	loopback = *(const struct sockaddr_in *) address;
	if (loopback.sin_addr.s_addr == htonl(INADDR_ANY))
		loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return real(socket, (struct sockaddr *) &loopback, sizeof(loopback));
}
