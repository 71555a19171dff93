from django.urls import path

from relayweb.access import views

app_name = "access"
urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("login/<str:secret>/", views.login_link, name="login-link"),
    path("logout/", views.Logout.as_view(), name="logout"),
]
